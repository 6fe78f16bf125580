//! Enqueues a job in a sqlx 0.8 transaction.

use drivers::{Confirm, Example};
use queue_core::{Job as _, JobHandle};
use sqlx::{Connection as _, PgConnection};

async fn order(tx: &mut PgConnection, order: i64) -> anyhow::Result<JobHandle<Confirm>> {
    sqlx::query("insert into example_orders (number) values ($1)").bind(order).execute(&mut *tx).await?;
    let enqueue = Confirm { order }.statement().unique(order.to_string()).build()?;
    let [job_type, payload, options] = enqueue.parameters();
    let (id, outcome): (i64, String) = sqlx::query_as(enqueue.sql()).bind(job_type).bind(payload).bind(options).fetch_one(tx).await?;
    Ok(enqueue.handle(id, &outcome))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let example = Example::start().await?;
    let mut connection = PgConnection::connect(&example.url).await?;
    let mut tx = connection.begin().await?;
    let never = order(&mut tx, 1).await?;
    tx.rollback().await?;
    let mut tx = connection.begin().await?;
    let job = order(&mut tx, 1).await?;
    tx.commit().await?;
    connection.close().await?;
    example.work(never, job).await
}
