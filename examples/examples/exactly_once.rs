//! Transactional job: the writes in the job's own transaction take effect exactly once, even if the attempt is repeated.

use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// Job that moves money. The claim, the two updates, the enqueue of the receipt and the completion commit together.
#[job(name = "example_transfer", transactional, backoff = fixed("50ms"))]
#[derive(Serialize, Deserialize)]
struct Transfer {
    from: String,
    to: String,
    amount: i64,
}

impl Handler for Transfer {
    async fn run(self, cx: &Context) -> JobResult {
        let mut tx = cx.transaction().await;
        let update = "update example_account set balance = balance + $1 where name = $2";
        sqlx::query(update).bind(-self.amount).bind(&self.from).execute(&mut *tx).await?;
        if cx.attempt() == 1 {
            return Err("the network failed in the middle".into()); // rolls back the update above
        }
        sqlx::query(update).bind(self.amount).bind(&self.to).execute(&mut *tx).await?;
        Receipt { to: self.to }.enqueue(&mut tx).await?;
        Ok(())
    }
}

/// Receipt for a transfer. Exactly one receipt is enqueued for each committed transfer.
#[job(name = "example_receipt")]
#[derive(Serialize, Deserialize)]
struct Receipt {
    to: String,
}

impl Handler for Receipt {
    async fn run(self, _: &Context) -> JobResult {
        println!("a receipt for {}", self.to);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    sqlx::raw_sql("create table if not exists example_account (name text, balance bigint)").execute(pool).await?;
    sqlx::raw_sql("truncate example_account; insert into example_account values ('ada', 100), ('bob', 0)").execute(pool).await?;

    let transfer = Transfer { from: "ada".into(), to: "bob".into(), amount: 30 }.enqueue(pool).await?.id();
    examples::run_until_finished(Worker::new(pool.clone()), pool, &[transfer]).await?;

    let balances: Vec<i64> = sqlx::query_scalar("select balance from example_account order by name").fetch_all(pool).await?;
    println!("after {} attempts: {balances:?}", examples::find_job(pool, transfer).await?.attempts);
    assert_eq!(balances, [70, 30]);
    sqlx::raw_sql("drop table example_account").execute(pool).await?;
    Ok(())
}
