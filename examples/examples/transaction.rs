//! Transactional enqueue: the job is part of the caller's transaction. After a rollback the job does not exist. After the commit the job
//! runs and sees the transaction's other writes.

use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};

/// Job that confirms an order. The order is in the application's own table; the payload holds the order number.
#[job(name = "example_confirm_order")]
#[derive(Serialize, Deserialize)]
struct ConfirmOrder {
    number: i64,
}

impl Handler for ConfirmOrder {
    async fn run(self, cx: &Context) -> JobResult {
        let update = sqlx::query("update example_order set confirmed = true where number = $1").bind(self.number);
        assert_eq!(update.execute(cx.pool()).await?.rows_affected(), 1, "the order was committed with this job");
        println!("order {} is confirmed", self.number);
        Ok(())
    }
}

/// Inserts an order and enqueues its confirmation. Only the caller decides whether the transaction commits.
async fn order(tx: &mut PgConnection, number: i64) -> anyhow::Result<queue_core::JobId> {
    sqlx::query("insert into example_order (number) values ($1)").bind(number).execute(&mut *tx).await?;
    Ok(ConfirmOrder { number }.enqueue(tx).await?.id())
}

async fn exists(pool: &PgPool, job: queue_core::JobId) -> sqlx::Result<bool> {
    sqlx::query_scalar("select exists (select from queue.jobs where id = $1)").bind(job).fetch_one(pool).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    sqlx::raw_sql("create table if not exists example_order (number bigint primary key, confirmed boolean not null default false)")
        .execute(pool)
        .await?;

    let mut tx = pool.begin().await?;
    let never = order(&mut tx, 1).await?;
    tx.rollback().await?;
    println!("rolled back: job #{never} exists: {}", exists(pool, never).await?);
    assert!(!exists(pool, never).await?);

    let mut tx = pool.begin().await?;
    let job = order(&mut tx, 2).await?;
    println!("not committed yet: others see job #{job}: {}", exists(pool, job).await?);
    assert!(!exists(pool, job).await?);
    tx.commit().await?;

    examples::run_until_finished(Worker::new(pool.clone()), pool, &[job]).await?;
    assert_eq!(examples::find_job(pool, job).await?.state.name(), "completed");
    sqlx::raw_sql("drop table example_order").execute(pool).await?;
    Ok(())
}
