//! Progress reports of a job. A retry continues from the last checkpoint.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use queue_core::{Context, Handler, Job, JobResult, JobState, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// Job that imports rows. The first attempt fails halfway.
#[job(name = "example_import", backoff = fixed("50ms"), output = u32)]
#[derive(Serialize, Deserialize)]
struct Import {
    rows: u32,
}

impl Handler for Import {
    async fn run(self, cx: &Context) -> JobResult<u32> {
        let first = cx.last_checkpoint().await?.unwrap_or(0);
        for row in first..self.rows {
            cx.stage(format!("row {row}"));
            cx.progress(f64::from(row) / f64::from(self.rows)); // in memory; written a few times a second
            cx.event("imported");
            tokio::time::sleep(Duration::from_millis(2)).await;
            if row % 100 == 99 {
                cx.checkpoint(&(row + 1)).await?; // committed when this returns
            }
            if row == 450 && cx.attempt() == 1 {
                return Err("the network failed in the middle".into());
            }
        }
        Ok(self.rows - first)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool().clone();
    let job = Import { rows: 800 }.enqueue(&pool).await?;
    let stop = CancellationToken::new();
    let worker = tokio::spawn(Worker::new(pool.clone()).run(stop.clone().cancelled_owned()));

    let bar = ProgressBar::new(100).with_style(ProgressStyle::with_template("{bar:40} {percent:>3}% {msg}")?);
    let queue = database.queue();
    let mut progress = job.watch(&queue); // a stream, from any process
    while let Some(now) = progress.next().await.transpose()? {
        bar.set_position((now.fraction.unwrap_or(0.0) * 100.0) as u64);
        bar.set_message(format!("attempt {}, {}", now.attempt, now.stage.unwrap_or_default()));
        assert!(now.over.is_none_or(|state| state == JobState::Completed));
    }
    bar.finish();
    let rows = job.wait(&queue).await?;
    println!("the second attempt imported {rows} rows");
    assert_eq!(rows, 400); // it continued from the checkpoint at 400
    stop.cancel();
    worker.await??;
    Ok(())
}
