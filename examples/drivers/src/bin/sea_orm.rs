//! Enqueues a job in a sea-orm transaction.

use drivers::{Confirm, Example};
use queue_core::{Job as _, JobHandle};
use sea_orm::{ConnectionTrait, Database, DbBackend, Statement, TransactionTrait as _};

async fn order(tx: &impl ConnectionTrait, order: i64) -> anyhow::Result<JobHandle<Confirm>> {
    let insert = "insert into example_orders (number) values ($1)";
    tx.execute_raw(Statement::from_sql_and_values(DbBackend::Postgres, insert, [order.into()])).await?;
    let enqueue = Confirm { order }.statement().key("orders").build()?;
    let statement = Statement::from_sql_and_values(DbBackend::Postgres, enqueue.sql(), enqueue.parameters().map(Into::into));
    let row = tx.query_one_raw(statement).await?.ok_or_else(|| anyhow::anyhow!("no row"))?;
    Ok(enqueue.handle(row.try_get_by(0)?, &row.try_get_by::<String, _>(1)?))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let example = Example::start().await?;
    let connection = Database::connect(&example.url).await?;
    let tx = connection.begin().await?;
    let never = order(&tx, 1).await?;
    tx.rollback().await?;
    let tx = connection.begin().await?;
    let job = order(&tx, 1).await?;
    tx.commit().await?;
    connection.close().await?;
    example.work(never, job).await
}
