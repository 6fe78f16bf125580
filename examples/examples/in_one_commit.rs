//! Handler that begins its own transaction after the slow work. The handler's writes, the follow-up job and the completion commit
//! together.

use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// Job that measures a parcel and removes it from stock. The output is the number of parcels left in stock.
#[job(name = "example_ship", output = i64, backoff = fixed("50ms"))]
#[derive(Serialize, Deserialize)]
struct Ship {
    parcel: String,
}

/// Job that notifies the customer. Exactly one job is enqueued for each shipped parcel.
#[job(name = "example_shipped")]
#[derive(Serialize, Deserialize)]
struct Shipped {
    parcel: String,
}

impl Handler for Ship {
    async fn run(self, cx: &Context) -> JobResult<i64> {
        let grams = i32::try_from(self.parcel.len())? * 100; // slow work, while no transaction is open

        let mut tx = cx.begin().await?;
        let take = "update example_shelf set grams = $1, out = out + 1 where parcel = $2";
        if sqlx::query(take).bind(grams).bind(&self.parcel).execute(&mut *tx).await?.rows_affected() == 0 {
            return Err(tx.fail("there is no such parcel").await); // a dead letter, in the same commit as anything written here
        }
        if cx.attempt() == 1 {
            return Err("the network failed in the middle".into()); // rolls back the update above
        }
        let left = sqlx::query_scalar("select count(*) from example_shelf where out = 0").fetch_one(&mut *tx).await?;
        Shipped { parcel: self.parcel }.enqueue(&mut tx).await?;
        tx.complete(left).await
    }
}

impl Handler for Shipped {
    async fn run(self, _: &Context) -> JobResult {
        println!("`{}` is on its way", self.parcel);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    sqlx::raw_sql("create table if not exists example_shelf (parcel text, grams int, out int not null default 0)").execute(pool).await?;
    sqlx::raw_sql("truncate example_shelf; insert into example_shelf (parcel) values ('books'), ('tea')").execute(pool).await?;
    let (books, lost) = (Ship { parcel: "books".into() }.enqueue(pool).await?.id(), Ship { parcel: "x".into() }.enqueue(pool).await?.id());
    examples::run_until_finished(Worker::new(pool.clone()), pool, &[books, lost]).await?;
    println!("after {} attempts: {:?}", examples::find_job(pool, books).await?.attempts, examples::find_job(pool, lost).await?.error);
    let out: Vec<i32> = sqlx::query_scalar("select out from example_shelf order by parcel").fetch_all(pool).await?;
    assert_eq!((out, examples::find_job(pool, lost).await?.state.name()), (vec![1, 0], "dead"));
    sqlx::raw_sql("drop table example_shelf").execute(pool).await?;
    Ok(())
}
