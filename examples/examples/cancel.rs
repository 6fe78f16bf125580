//! Cancels a running job. The handler notices the cancellation and cleans up. The job is not retried.

use std::time::Duration;

use queue_core::{Context, Handler, Job, JobResult, Store, job, operate::OperationOutcome};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_render", max_attempts = 5)]
#[derive(Serialize, Deserialize)]
struct Render {
    frames: u32,
}

impl Handler for Render {
    async fn run(self, cx: &Context) -> JobResult {
        for frame in 0..self.frames {
            tokio::select! {
                () = cx.cancelled().cancelled() => {
                    println!("told to stop after {frame} frames: {:?}", cx.cancelled().reason()); // a shutdown would have another reason
                    return Err("not finished".into()); // a cancelled job: no failure, no retry
                }
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let running = Render { frames: 10_000 }.enqueue(pool).await?;
    let waiting = Render { frames: 1 }.enqueue(pool).after(Duration::from_hours(1)).await?;

    // Cancelling a waiting job takes effect immediately. `select queue.cancel(id)` does the same from any language.
    assert_eq!(waiting.cancel(pool).await?, OperationOutcome::Done, "it will not run");

    let stop = async {
        while examples::find_job(pool, running.id()).await?.state.name() != "running" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(running.cancel(pool).await?, OperationOutcome::Cancelling, "it runs, so its handler is cancelled");
        while examples::find_job(pool, running.id()).await?.state.name() == "running" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    let mut stopped = Ok(());
    // A handler that ignores the cancellation is dropped after 2 s.
    let worker = Worker::new(pool.clone()).cancel_grace(Duration::from_secs(2));
    worker.run(Box::pin(async { stopped = stop.await })).await?;
    stopped?;
    let job = examples::find_job(pool, running.id()).await?;
    println!("{} after {} attempt", job.state, job.attempts);
    assert_eq!((job.state.name(), job.attempts), ("cancelled", 1));
    Ok(())
}
