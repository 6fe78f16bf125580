//! A nightly import: one job finds out what there is, a child for each page does the work on whichever worker is free, and what they did is added up.

use std::time::Duration;

use futures_util::future::try_join_all;
use queue_core::{Child, Context, Durable, Handler, Job as _, JobResult, Store, job, operate, sqlx};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// Every night at half past two, say: `#[job(cron = "30 2 * * *")]` enqueues one by itself.
#[job(name = "example_import", durable, output = i64)]
#[derive(Serialize, Deserialize)]
struct Import {
    night: String,
}

impl Handler for Import {
    async fn run(self, cx: &Durable) -> JobResult<i64> {
        let pages: Vec<i64> = cx.step("list", list(&self.night)).await?;
        let mut children = Vec::new();
        for page in pages {
            children.push(cx.spawn(("page", page), ImportPage { night: self.night.clone(), page }).await?);
        }
        // Parked until all are over. One that is a dead letter ends this job; `outcome` instead of `join` would go on without it.
        let rows: Vec<i64> = try_join_all(children.into_iter().map(Child::join)).await?;
        let sum = rows.iter().sum();
        let publish = async |tx: &mut sqlx::PgConnection| {
            let insert = sqlx::query("insert into example_imports (night, rows) values ($1, $2)").bind(&self.night).bind(sum);
            insert.execute(tx).await.map(|done| done.rows_affected())
        };
        cx.step_tx("publish", publish).await?;
        Ok(sum)
    }
}

/// A plain job with retries and limits of its own.
#[job(name = "example_import_page", max_attempts = 3, backoff = fixed("10ms"), output = i64)]
#[derive(Serialize, Deserialize)]
struct ImportPage {
    night: String,
    page: i64,
}

impl Handler for ImportPage {
    async fn run(self, cx: &Context) -> JobResult<i64> {
        tokio::time::sleep(Duration::from_millis(5)).await; // it is read, and written
        if self.page == 3 && cx.attempt() == 1 {
            return Err("the third page is not there yet".into());
        }
        Ok(10 * self.page)
    }
}

/// Which pages there are.
async fn list(night: &str) -> Result<Vec<i64>, std::io::Error> {
    tokio::task::yield_now().await;
    Ok((1..=8).filter(|_| !night.is_empty()).collect())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    sqlx::raw_sql("create table if not exists example_imports (night text, rows bigint); truncate example_imports").execute(pool).await?;

    let job = Import { night: "2026-11-25".to_owned() }.enqueue(pool).await?;
    let stop = CancellationToken::new();
    let worker = Worker::new(pool.clone()).register::<Import>().register::<ImportPage>();
    let worker = tokio::spawn(worker.run(stop.clone().cancelled_owned()));
    assert_eq!(job.wait(pool).timeout(Duration::from_secs(30)).await?, 360);
    for child in operate::children(pool, Store::default(), job.id()).await? {
        println!("{}: job {}, {}", child.name, child.id, child.state.as_deref().unwrap_or("not over"));
    }
    stop.cancel();
    worker.await??;

    let imports: Vec<(String, i64)> = sqlx::query_as("select night, rows from example_imports").fetch_all(pool).await?;
    assert_eq!(imports, [("2026-11-25".to_owned(), 360)], "once");
    Ok(())
}
