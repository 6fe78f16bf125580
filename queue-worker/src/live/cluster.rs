//! Tracks which node of a Citus cluster holds a distributed store. When the store moves to another node, the worker's pools are
//! redirected to that node.

use std::time::Duration;

use queue_core::{
    Store,
    runner::{ClusterNode, StoreLocation, locate, place, relay},
};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::{sleep, timeout};

use super::{Engine, Loop, StoreConnection, bounded, dial::is_same_place, fresh::PoolFreshness, store_connection::wait_for_move};
use crate::error::{Error, warn_throttled};

/// Connection pools for the nodes of a cluster.
pub(crate) struct Cluster {
    /// Pool for the node that holds the store. Handlers and the worker use this pool.
    owner: PgPool,
    /// Pool for the coordinator, which creates and drops tables.
    coordinator: PgPool,
    /// Store with statements that are adapted to the store's node.
    store: Store,
    fresh: PoolFreshness,
    /// Pool for the node in the program's URL. Used to query which node holds the store. Any node can answer this query.
    any: PgPool,
    at: ClusterNode,
}

/// Interval between checks for undelivered notifications from other nodes. On average, such a notification is delayed by half the
/// interval.
const RELAY: Duration = Duration::from_millis(60);

/// Interval between queries for the node that holds the store. If a statement is rejected because the store has moved, the query runs
/// immediately.
const BEAT: Duration = Duration::from_millis(200);

impl Cluster {
    /// Redirects the handlers' pool and the worker's pool to the node that holds the store, and adapts the store's statements to this
    /// node. Returns `None` if the store is not distributed.
    pub(crate) async fn find(
        link: &mut StoreConnection,
        (theirs, any): (&mut PgPool, &mut PgPool),
        of: &mut Store,
    ) -> Result<Option<Self>, Error> {
        let found = bounded(locate(link.get().await?, *of)).await;
        let Some(StoreLocation { node: at, coordinator, store }) = link.note(found)? else { return Ok(None) };
        let (fresh, requested) = (PoolFreshness::default(), any.connect_options());
        // After a move, connections to the old node must not be lent to handlers.
        let owner = fresh.lend_tested(theirs.options().clone()).connect_lazy_with(led_to(&at, &theirs.connect_options(), &requested)?);
        let coordinator = PgPoolOptions::new().max_connections(1).connect_lazy_with(coordinator.lead((*requested).clone())?);
        tracing::info!(node = %at, "the store is distributed: works on the node that it is on");
        let cluster = Self { owner: owner.clone(), coordinator, store, fresh, any: any.clone(), at };
        (*theirs, *any, *of) = (owner.clone(), owner, store);
        Ok(Some(cluster))
    }

    /// Follows the store to its current node until the engine ends. Also sends the notifications of transactions that were started on
    /// other nodes. These notifications are stored on the store's node until they are sent. Returns a connection to the coordinator.
    pub(crate) fn follow(self, engine: &Engine) -> StoreConnection {
        let days = StoreConnection::new(&self.coordinator, "days");
        let link = StoreConnection::new(&self.owner, "relay").relaxed().impatient();
        let store = self.store;
        drop(engine.supervise(Loop::Relay, move || relay_all(link.another(), store)));
        engine.handle().spawn(async move { self.go_along().await });
        days
    }

    async fn go_along(self) {
        let Self { owner, coordinator, store, fresh, any, mut at } = self;
        // If the query fails, the next query uses the other pool, because the node of the first pool may be down.
        let mut ways = [(StoreConnection::new(&any, "place"), any), (StoreConnection::new(&coordinator, "place"), coordinator)];
        while !owner.is_closed() {
            // The wait misses a statement that is rejected while the query below runs. Such a statement is retried until the store's new
            // node is known, so a later wait detects the rejection.
            let _ = timeout(BEAT, wait_for_move()).await;
            let (link, requested) = &mut ways[0];
            let found = match link.get().await {
                Ok(connection) => bounded(place(connection, store)).await,
                Err(error) => Err(error),
            };
            let moved = match link.note(found) {
                Ok(Some(now)) if !now.is_same(&at) => {
                    led_to(&now, &owner.connect_options(), &requested.connect_options()).map(|options| Some((now, options)))
                }
                Ok(_) => Ok(None),
                Err(error) => Err(error),
            };
            match moved {
                Ok(Some((now, options))) => {
                    owner.set_connect_options(options);
                    fresh.renew();
                    tracing::warn!(node = %now, "the store has moved; using its new node");
                    at = now;
                }
                Ok(None) => {}
                Err(error) => {
                    warn_throttled(&error, "cannot determine the node of the store; retrying, also through the coordinator");
                    ways.swap(0, 1);
                }
            }
        }
    }
}

async fn relay_all(mut link: StoreConnection, store: Store) {
    loop {
        let relayed = match link.get().await {
            Ok(connection) => bounded(relay(connection, store)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = link.note(relayed) {
            warn_throttled(&error, "cannot relay notifications from other nodes of the cluster; retrying");
        }
        sleep(RELAY).await;
    }
}

/// Returns connection options for `node`, normally the options `theirs` with the host of `node`.
fn led_to(node: &ClusterNode, theirs: &PgConnectOptions, requested: &PgConnectOptions) -> sqlx::Result<PgConnectOptions> {
    // If the store is on the node that `requested` connects to, `ClusterNode::lead` does not change the host. In this case, `theirs`
    // may point to a pooler or to the store's previous node, so `requested` is used.
    let from = if node.is_here() && !is_same_place(theirs, requested) { requested } else { theirs };
    node.lead(from.clone())
}
