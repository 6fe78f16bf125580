//! Tests ordering keys. The jobs of a key run one at a time in commit order, even if jobs fail or die, or an operator intervenes.

mod crowd;
mod edges;
mod statements;
mod ways;

use queue_core::{Job as _, JobId, options::KeyPolicy};
use sqlx::PgConnection;
use tests::{
    Act, Do, operate,
    protocol::{self, Lease},
};

/// Enqueues a job with the ordering key `key`.
async fn enqueue(connection: &mut PgConnection, key: &str) -> JobId {
    Do { act: Act::Ok("done".to_owned()) }.enqueue(connection).key(key).await.unwrap().id()
}

/// Enqueues a job whose key policy is `Skip`, so that a dead letter does not block the ordering key.
async fn enqueue_skipping(connection: &mut PgConnection, key: &str) -> JobId {
    Do { act: Act::Ok("done".to_owned()) }.enqueue(connection).key(key).key_policy(KeyPolicy::Skip).await.unwrap().id()
}

/// Consumes the hints about freed keys, and skips locked rows. Returns the number of moved jobs.
async fn unblock(connection: &mut PgConnection) -> i32 {
    operate::unblock(connection).await.unwrap()
}

/// Claims up to ten ready jobs for a new worker.
async fn claim(connection: &mut PgConnection) -> Lease {
    let worker = protocol::register(connection).await.unwrap();
    protocol::claim(connection, worker, 10).await.unwrap()
}

/// Claims up to ten ready jobs, settles them with the given verdict and unblocks keys. Returns the settled jobs.
async fn step(connection: &mut PgConnection, verdict: &'static str) -> Vec<JobId> {
    let lease = claim(connection).await;
    if !lease.jobs.is_empty() {
        assert!(protocol::settle(connection, &lease.all(verdict)).await.unwrap().is_empty());
    }
    unblock(connection).await;
    lease.ids()
}
