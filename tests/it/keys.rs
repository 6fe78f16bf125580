//! Ordering keys: one job of a key at a time, in commit order, despite dead jobs, failures and operators.

mod crowd;
mod edges;
mod statements;
mod ways;

use queue_core::{Job as _, JobId, KeyPolicy};
use sqlx::PgConnection;
use tests::{
    Act, Do, operate,
    protocol::{self, Lease},
};

/// Enqueues a job of this key on a connection.
async fn enqueue(connection: &mut PgConnection, key: &str) -> JobId {
    Do { act: Act::Ok("done".to_owned()) }.enqueue(connection).key(key).await.unwrap().id()
}

/// The same with a key that continues without its dead jobs.
async fn enqueue_skipping(connection: &mut PgConnection, key: &str) -> JobId {
    Do { act: Act::Ok("done".to_owned()) }.enqueue(connection).key(key).key_policy(KeyPolicy::Skip).await.unwrap().id()
}

/// Consumes all hints; returns the number of jobs moved.
async fn unblock(connection: &mut PgConnection) -> i32 {
    operate::unblock(connection).await.unwrap()
}

/// Claims what a worker would run now.
async fn claim(connection: &mut PgConnection) -> Lease {
    let worker = protocol::register(connection).await.unwrap();
    protocol::claim(connection, worker, 10).await.unwrap()
}

/// Runs the ready jobs and unblocks their keys; returns these jobs.
async fn step(connection: &mut PgConnection, verdict: &'static str) -> Vec<JobId> {
    let lease = claim(connection).await;
    if !lease.jobs.is_empty() {
        assert!(protocol::settle(connection, &lease.all(verdict)).await.unwrap().is_empty());
    }
    unblock(connection).await;
    lease.ids()
}
