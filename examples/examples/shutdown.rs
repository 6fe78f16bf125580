//! Shutdown: the worker lets running jobs finish within the grace period and releases all other claimed jobs without charging an attempt.

use std::{sync::Arc, time::Duration};

use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// Signal that a handler has begun.
type Begun = Arc<Notify>;

#[job(name = "example_bake", state(Begun))]
#[derive(Serialize, Deserialize)]
struct Bake {
    loaf: u32,
}

impl Handler for Bake {
    async fn run(self, cx: &Context) -> JobResult {
        println!("loaf {} is in the oven", self.loaf);
        cx.state::<Begun>().notify_one();
        tokio::select! {
            // Resolves when the grace period has ended, so that the handler can save partial work. An error returned now does not count
            // as an attempt.
            () = cx.cancelled().cancelled() => Err("taken out half-baked".into()),
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                println!("loaf {} is done", self.loaf);
                Ok(())
            }
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let (pool, begun) = (database.pool(), Begun::default());
    let mut loaves = Vec::new();
    for loaf in 1..=3 {
        loaves.push(Bake { loaf }.enqueue(pool).await?.id());
    }
    let worker = || Worker::new(pool.clone()).concurrency(1).grace(Duration::from_secs(5)).state(Arc::clone(&begun));

    // Any future can trigger the shutdown. A program usually passes `queue_worker::shutdown_signal()`.
    worker().run(begun.notified()).await?;
    for (loaf, wanted) in loaves.iter().zip([("completed", 1), ("ready", 0), ("ready", 0)]) {
        let job = examples::find_job(pool, *loaf).await?;
        println!("after the shutdown: {} with {} attempt(s)", job.state, job.attempts);
        assert_eq!((job.state.name(), job.attempts), wanted);
    }

    examples::run_until_finished(worker(), pool, &loaves).await
}
