//! Working on the node that a distributed store is on: whatever the pools that were given lead to, those of the worker lead there, and go along when the
//! store moves. Knows how to find it, and nothing of jobs.

use std::time::Duration;

use queue_core::{
    Store,
    runner::{ClusterNode, Owner, locate, place, relay},
};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::{sleep, timeout};

use super::{Engine, Link, Loop, bounded, connect::told_of_a_move, dial::is_same_place, fresh::Fresh};
use crate::error::{Error, complain};

/// What leads to the nodes of a cluster.
pub(crate) struct Cluster {
    /// To the node that the store is on: for handlers, and for the worker.
    owner: PgPool,
    /// To the one that makes and drops tables.
    coordinator: PgPool,
    /// The store, with statements for the node that it is on.
    store: Store,
    fresh: Fresh,
    /// Any node, which knows where the store is.
    any: PgPool,
    at: ClusterNode,
}

/// How often it is looked whether anything was left to be told: whoever enqueues over another node waits for half of it.
const RELAY: Duration = Duration::from_millis(60);

/// How often it is asked where the store is, besides at once when a statement is refused because it has moved.
const BEAT: Duration = Duration::from_millis(200);

impl Cluster {
    /// Where the store is distributed, both pools, for handlers and for the worker, are led to its node from here on, and statements are written for that.
    pub(crate) async fn find(link: &mut Link, (theirs, any): (&mut PgPool, &mut PgPool), of: &mut Store) -> Result<Option<Self>, Error> {
        let found = bounded(locate(link.get().await?, *of)).await;
        let Some(Owner { node: at, coordinator, store }) = link.note(found)? else { return Ok(None) };
        let (fresh, asked) = (Fresh::default(), any.connect_options());
        // What the handlers' pool was told of its connections holds for these too.
        let owner = fresh.lend_tried(theirs.options().clone()).connect_lazy_with(led_to(&at, &theirs.connect_options(), &asked)?);
        let coordinator = PgPoolOptions::new().max_connections(1).connect_lazy_with(coordinator.lead((*asked).clone())?);
        tracing::info!(node = %at, "the store is distributed: works on the node that it is on");
        let cluster = Self { owner: owner.clone(), coordinator, store, fresh, any: any.clone(), at };
        (*theirs, *any, *of) = (owner.clone(), owner, store);
        Ok(Some(cluster))
    }

    /// Goes along with the store until the engine ends, and tells what was left to be told there. Returns what leads to the coordinator.
    pub(crate) fn follow(self, engine: &Engine) -> Link {
        let days = Link::new(&self.coordinator, "days");
        let link = Link::new(&self.owner, "relay").relaxed().impatient();
        let store = self.store;
        drop(engine.supervise(Loop::Relay, move || relay_all(link.another(), store)));
        engine.handle().spawn(async move { self.go_along().await });
        days
    }

    async fn go_along(self) {
        let Self { owner, coordinator, store, fresh, any, mut at } = self;
        // The node that was named may be the one that is gone.
        let mut ways = [(Link::new(&any, "place"), any), (Link::new(&coordinator, "place"), coordinator)];
        while !owner.is_closed() {
            // Whoever is refused is so again until it is known: nothing is lost between two looks.
            let _ = timeout(BEAT, told_of_a_move()).await;
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
                    complain(&error, "cannot see now on which node the store is; trying again, and over the coordinator");
                    ways.swap(0, 1);
                }
            }
        }
    }
}

async fn relay_all(mut link: Link, store: Store) {
    loop {
        let told = match link.get().await {
            Ok(connection) => bounded(relay(connection, store)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = link.note(told) {
            complain(&error, "cannot tell now what was enqueued over other nodes; trying again");
        }
        sleep(RELAY).await;
    }
}

/// What leads to the node as `theirs` lead, by what it was asked over.
fn led_to(node: &ClusterNode, theirs: &PgConnectOptions, asked: &PgConnectOptions) -> sqlx::Result<PgConnectOptions> {
    // They may lead to a pooler.
    let from = if node.is_here() && !is_same_place(theirs, asked) { asked } else { theirs };
    node.lead(from.clone())
}
