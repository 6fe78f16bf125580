//! Tests a store in a distributed schema of a Citus cluster, if a cluster is available. `QUEUE_TEST_CITUS` is the URL of its coordinator.
//! These tests are a separate binary, because they run against a cluster and not together with the other tests.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod kinds;
mod moves;
mod owner;
mod rate;
mod roles;
mod statements;
mod transactions;

use sqlx::{PgPool, postgres::PgPoolOptions};

use queue_core::{Store, runner::locate};
use tests::{TestDb, skipped};

/// Creates a database in the cluster. If there is no cluster, reports the test `what` as skipped and returns `None`.
async fn cluster(what: &str) -> Option<TestDb> {
    let db = TestDb::on_citus().await;
    if db.is_none() {
        skipped(what, "there is no cluster: QUEUE_TEST_CITUS is not set");
    }
    db
}

/// Creates a connection pool for one node.
fn pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(8).connect_lazy(url).unwrap()
}

/// Returns the URL of the node that owns the store.
async fn owner(db: &TestDb) -> String {
    let owner = locate(&mut db.pool.acquire().await.unwrap(), Store::default()).await.unwrap().unwrap();
    db.urls().into_iter().find(|url| url.contains(&format!(":{}/", owner.node.port()))).unwrap()
}
