//! Nightly import: one job lists the pages and enqueues a job for each page, which any free worker runs. Then the first job adds up the
//! results.

use std::time::Duration;

use queue_core::{Context, Failure, Handler, Job as _, JobResult, Store, durable::Durable, job, sqlx};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// Job that imports all pages of one night. `#[job(cron = "30 2 * * *")]` would enqueue this job at 2:30 every night.
#[job(name = "example_import", durable, output = i64)]
#[derive(Serialize, Deserialize)]
struct Import {
    night: String,
}

impl Handler for Import {
    async fn run(self, cx: &Durable) -> JobResult<i64> {
        let pages: Vec<i64> = cx.step("list", list(&self.night)).await?;
        let of = |page| ImportPage { night: self.night.clone(), page };
        let parts = cx.map("pages", pages.into_iter().map(of)).in_flight(4).await?;
        let ended = parts.join().await?; // parked until all parts have finished
        if ended.completed < ended.total {
            return Err(Failure::terminal(format!("{} of {} pages are not there", ended.total - ended.completed, ended.total)));
        }
        let (mut outputs, mut sum) = (ended.outputs(), 0);
        while let Some(page) = outputs.next_page().await? {
            for (_, rows) in page {
                sum += rows?;
            }
        }
        let publish = async |tx: &mut sqlx::PgConnection| {
            let insert = sqlx::query("insert into example_imports (night, rows) values ($1, $2)").bind(&self.night).bind(sum);
            insert.execute(tx).await.map(|done| done.rows_affected())
        };
        cx.step_tx("publish", publish).await?;
        Ok(sum)
    }
}

/// Job that imports one page. It is a plain job with its own retries and limits.
#[job(name = "example_import_page", max_attempts = 3, backoff = fixed("10ms"), output = i64)]
#[derive(Serialize, Deserialize)]
struct ImportPage {
    night: String,
    page: i64,
}

impl Handler for ImportPage {
    async fn run(self, cx: &Context) -> JobResult<i64> {
        tokio::time::sleep(Duration::from_millis(5)).await; // stands for I/O
        if self.page == 3 && cx.attempt() == 1 {
            return Err("the third page is not there yet".into());
        }
        Ok(10 * self.page)
    }
}

/// Lists the pages of one night.
async fn list(night: &str) -> Result<Vec<i64>, std::io::Error> {
    tokio::task::yield_now().await;
    Ok((1..=8).filter(|_| !night.is_empty()).collect())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();
    sqlx::raw_sql("create table if not exists example_imports (night text, rows bigint); truncate example_imports").execute(pool).await?;

    let job = Import { night: "2026-11-25".to_owned() }.enqueue(pool).await?;
    let stop = CancellationToken::new();
    let worker = Worker::new(pool.clone()).register::<Import>().register::<ImportPage>();
    let worker = tokio::spawn(worker.run(stop.clone().cancelled_owned()));
    assert_eq!(job.wait(&queue).timeout(Duration::from_secs(30)).await?, 360);
    for gather in queue.job(job.id()).gathers().await? {
        println!("{}: {:?} jobs, {} completed", gather.name, gather.total, gather.completed);
    }
    stop.cancel();
    worker.await??;

    let imports: Vec<(String, i64)> = sqlx::query_as("select night, rows from example_imports").fetch_all(pool).await?;
    assert_eq!(imports, [("2026-11-25".to_owned(), 360)], "once");
    Ok(())
}
