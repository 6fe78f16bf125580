//! Code block of `docs/TESTING.md` that uses the embedded server.

use std::{
    str::FromStr as _,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use queue_core::{Store, migrate};
use queue_worker::embedded::{Embedded, EmbeddedOptions};
use sqlx::{AssertSqlSafe, PgPool, postgres::PgConnectOptions};

static SERVER: LazyLock<Embedded> = LazyLock::new(|| Embedded::start(EmbeddedOptions::temporary()).unwrap());
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Returns a pool for a new database with the tables of the queue.
async fn test_database() -> PgPool {
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let options = PgConnectOptions::from_str(SERVER.url()).unwrap();
    let admin = PgPool::connect_with(options.clone()).await.unwrap();
    sqlx::query(AssertSqlSafe(format!("create database {name}"))).execute(&admin).await.unwrap();
    admin.close().await;
    let pool = PgPool::connect_with(options.database(&name)).await.unwrap();
    migrate(&pool, Store::default()).await.unwrap();
    pool
}
