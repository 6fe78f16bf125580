//! Ordering keys: one job of a key at a time, in the order of their commits, whoever dies, fails or interferes.

mod crowd;
mod edges;
mod hands;
mod ways;

use queue_core::{Job as _, JobId, KeyPolicy};
use sqlx::PgConnection;
use tests::{
    Act, Do, operate,
    protocol::{self, Lease},
};

/// A job of this key, on a connection.
async fn enqueue(connection: &mut PgConnection, key: &str) -> JobId {
    Do { act: Act::Ok("done".to_owned()) }.enqueue(connection).key(key).await.unwrap().id()
}

/// As above, that goes on without its dead.
async fn enqueue_skipping(connection: &mut PgConnection, key: &str) -> JobId {
    Do { act: Act::Ok("done".to_owned()) }.enqueue(connection).key(key).key_policy(KeyPolicy::Skip).await.unwrap().id()
}

/// Consumes all hints; returns how many jobs were moved.
async fn unblock(connection: &mut PgConnection) -> i32 {
    operate::unblock(connection).await.unwrap()
}

/// What a worker would run now.
async fn claim(connection: &mut PgConnection) -> Lease {
    let worker = protocol::register(connection).await.unwrap();
    protocol::claim(connection, worker, 10).await.unwrap()
}

/// Runs what is ready, and lets the keys go on; returns what it was.
async fn step(connection: &mut PgConnection, verdict: &'static str) -> Vec<JobId> {
    let lease = claim(connection).await;
    if !lease.jobs.is_empty() {
        assert!(protocol::settle(connection, &lease.all(verdict)).await.unwrap().is_empty());
    }
    unblock(connection).await;
    lease.ids()
}
