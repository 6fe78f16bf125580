//! Follows the node of a distributed store: redirects the worker's pools to that node, and again when the store moves. Knows nothing about jobs.

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

/// Pools that lead to nodes of a cluster.
pub(crate) struct Cluster {
    /// To the store's node: for handlers and the worker.
    owner: PgPool,
    /// To the coordinator, which creates and drops tables.
    coordinator: PgPool,
    /// The store, with statements for its node.
    store: Store,
    fresh: PoolFreshness,
    /// To any node, which knows where the store is.
    any: PgPool,
    at: ClusterNode,
}

/// Interval between checks for undelivered notifications. A producer on another node waits for half of it on average.
const RELAY: Duration = Duration::from_millis(60);

/// Interval between queries for the store's node. A statement rejected because the store has moved triggers one immediately.
const BEAT: Duration = Duration::from_millis(200);

impl Cluster {
    /// Redirects both pools to the store's node if it is distributed, and adapts the statements.
    pub(crate) async fn find(
        link: &mut StoreConnection,
        (theirs, any): (&mut PgPool, &mut PgPool),
        of: &mut Store,
    ) -> Result<Option<Self>, Error> {
        let found = bounded(locate(link.get().await?, *of)).await;
        let Some(StoreLocation { node: at, coordinator, store }) = link.note(found)? else { return Ok(None) };
        let (fresh, asked) = (PoolFreshness::default(), any.connect_options());
        // Freshness of the handlers' connections applies to these as well.
        let owner = fresh.lend_tested(theirs.options().clone()).connect_lazy_with(led_to(&at, &theirs.connect_options(), &asked)?);
        let coordinator = PgPoolOptions::new().max_connections(1).connect_lazy_with(coordinator.lead((*asked).clone())?);
        tracing::info!(node = %at, "the store is distributed: works on the node that it is on");
        let cluster = Self { owner: owner.clone(), coordinator, store, fresh, any: any.clone(), at };
        (*theirs, *any, *of) = (owner.clone(), owner, store);
        Ok(Some(cluster))
    }

    /// Follows the store until the engine ends, and delivers notifications left there. Returns a link to the coordinator.
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
        // The node in use may be the lost one.
        let mut ways = [(StoreConnection::new(&any, "place"), any), (StoreConnection::new(&coordinator, "place"), coordinator)];
        while !owner.is_closed() {
            // Rejected statements are retried until then, so nothing is lost between two queries.
            let _ = timeout(BEAT, wait_for_move()).await;
            let (link, asked) = &mut ways[0];
            let found = match link.get().await {
                Ok(connection) => bounded(place(connection, store)).await,
                Err(error) => Err(error),
            };
            let moved = match link.note(found) {
                Ok(Some(now)) if !now.is_same(&at) => {
                    led_to(&now, &owner.connect_options(), &asked.connect_options()).map(|options| Some((now, options)))
                }
                Ok(_) => Ok(None),
                Err(error) => Err(error),
            };
            match moved {
                Ok(Some((now, options))) => {
                    owner.set_connect_options(options);
                    fresh.renew();
                    tracing::warn!(node = %now, "the store has moved: works on this node of the cluster from now on");
                    at = now;
                }
                Ok(None) => {}
                Err(error) => {
                    warn_throttled(&error, "cannot see now on which node the store is; trying again, and over the coordinator");
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
            warn_throttled(&error, "cannot tell now what was enqueued over other nodes; trying again");
        }
        sleep(RELAY).await;
    }
}

/// Returns options for the node: those of `theirs`, with the host of the node.
fn led_to(node: &ClusterNode, theirs: &PgConnectOptions, asked: &PgConnectOptions) -> sqlx::Result<PgConnectOptions> {
    // These may lead to a pooler.
    let from = if node.is_here() && !is_same_place(theirs, asked) { asked } else { theirs };
    node.lead(from.clone())
}
