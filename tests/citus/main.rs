//! A store in a distributed schema of a Citus cluster, if there is one to test on: `QUEUE_TEST_CITUS` is the address of its coordinator. A binary of its own, for
//! it is run beside a cluster, and not with the others.
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

/// A database of the cluster; without one the test says that it is skipped.
async fn cluster(what: &str) -> Option<TestDb> {
    let db = TestDb::on_citus().await;
    if db.is_none() {
        skipped(what, "there is no cluster: QUEUE_TEST_CITUS is not set");
    }
    db
}

/// A pool to one node.
fn pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(8).connect_lazy(url).unwrap()
}

/// The address of the node that the store is on.
async fn owner(db: &TestDb) -> String {
    let owner = locate(&mut db.pool.acquire().await.unwrap(), Store::default()).await.unwrap().unwrap();
    db.urls().into_iter().find(|url| url.contains(&format!(":{}/", owner.node.port()))).unwrap()
}
