//! Enqueues a job in a tokio-postgres transaction.

use drivers::{Confirm, Example};
use queue_core::{Job as _, JobHandle, Priority};
use tokio_postgres::{NoTls, Transaction};

async fn order(tx: &Transaction<'_>, order: i64) -> anyhow::Result<JobHandle<Confirm>> {
    tx.execute("insert into example_orders (number) values ($1)", &[&order]).await?;
    let enqueue = Confirm { order }.statement().priority(Priority::EXPLICIT).build()?;
    let [job_type, payload, options] = enqueue.parameters();
    let row = tx.query_one(enqueue.sql(), &[&job_type, &payload, &options]).await?;
    Ok(enqueue.handle(row.get(0), row.get(1)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let example = Example::start().await?;
    let (mut client, connection) = tokio_postgres::connect(&example.url, NoTls).await?;
    let connection = tokio::spawn(connection);
    let tx = client.transaction().await?;
    let never = order(&tx, 1).await?;
    tx.rollback().await?;
    let tx = client.transaction().await?;
    let job = order(&tx, 1).await?;
    tx.commit().await?;
    drop(client);
    connection.await??;
    example.work(never, job).await
}
