//! Enqueues a job in a diesel-async transaction.

use diesel::{
    QueryableByName, sql_query,
    sql_types::{BigInt, Text},
};
use diesel_async::{AnsiTransactionManager, AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _, TransactionManager as _};
use drivers::{Confirm, Example};
use queue_core::{Job as _, JobHandle};

#[derive(QueryableByName)]
struct Enqueued {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    outcome: String,
}

async fn order(tx: &mut AsyncPgConnection, order: i64) -> anyhow::Result<JobHandle<Confirm>> {
    sql_query("insert into example_orders (number) values ($1)").bind::<BigInt, _>(order).execute(tx).await?;
    let enqueue = Confirm { order }.statement().meta("from", "diesel").build()?;
    let [job_type, payload, options] = enqueue.parameters();
    let statement = sql_query(enqueue.sql()).bind::<Text, _>(job_type).bind::<Text, _>(payload).bind::<Text, _>(options);
    let row: Enqueued = statement.get_result(tx).await?;
    Ok(enqueue.handle(row.id, &row.outcome))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let example = Example::start().await?;
    let mut connection = AsyncPgConnection::establish(&example.url).await?;
    AnsiTransactionManager::begin_transaction(&mut connection).await?;
    let never = order(&mut connection, 1).await?;
    AnsiTransactionManager::rollback_transaction(&mut connection).await?;
    let job = connection.transaction(async |tx| order(tx, 1).await).await?;
    example.work(never, job).await
}
