//! Batches: one handler call runs many jobs. In this example, the jobs are push notifications that are sent in one request. Each job has
//! its own result. If one job makes the whole request fail, the jobs are retried in smaller batches, so the other jobs still complete.

use std::time::{Duration, Instant};

use queue_core::{
    Failure, Job, JobResult, JobState, Store,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// A push notification. Up to 100 notifications are sent together. A batch that is not full is sent after 100 ms.
#[job(name = "example_push", batch = 100, batch_wait = "100ms", max_attempts = 4, backoff = fixed("50ms"), output = String)]
#[derive(Serialize, Deserialize)]
struct Push {
    device: String,
}

impl BatchHandler for Push {
    async fn run(batch: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        println!("a request with {} notifications", batch.len());
        let devices: Vec<&str> = batch.iter().map(|job| job.payload().device.as_str()).collect();
        let receipts = request(&devices)?; // after an error, all jobs are retried: in smaller batches, finally alone
        for (job, receipt) in batch.iter_mut().zip(receipts) {
            match receipt {
                Some(receipt) => job.complete(receipt),
                None => job.fail(Failure::terminal("no such device")),
            }
        }
        Ok(())
    }
}

/// Sends a request to the simulated service. Returns a receipt for each device that the service knows. One bad device makes the whole
/// request fail.
fn request(devices: &[&str]) -> Result<Vec<Option<String>>, std::io::Error> {
    if devices.contains(&"evil") {
        return Err(std::io::Error::other("500 Internal Server Error"));
    }
    Ok(devices.iter().map(|device| (*device != "gone").then(|| format!("sent to {device}"))).collect())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();

    let named = |device: &str| Push { device: device.to_owned() };
    let gone = named("gone").enqueue(pool).await?;
    let evil = named("evil").enqueue(pool).await?;
    let last = named("last").enqueue(pool).await?;
    Push::enqueue_all((0..97).map(|number| named(&format!("device {number}"))), pool).await?;

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(pool.clone()).register_batch::<Push>().run(async { drop(stopped.await) });
    let worker = tokio::spawn(worker);
    let until = Instant::now() + Duration::from_secs(30);
    let over = "select count(*) from queue.jobs where job_type = 'example_push' and state in ('completed', 'dead')";
    while queue_core::sqlx::query_scalar::<_, i64>(over).fetch_one(pool).await? < 100 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let _ = stop.send(());
    worker.await??;

    for (job, wanted) in [(gone.id(), JobState::Dead), (evil.id(), JobState::Dead), (last.id(), JobState::Completed)] {
        assert_eq!(examples::find_job(pool, job).await?.state, wanted);
    }
    let dead = "select count(*) from queue.dead d join queue.jobs j using (id) where j.job_type = 'example_push'";
    assert_eq!(queue_core::sqlx::query_scalar::<_, i64>(dead).fetch_one(pool).await?, 2, "98 of 100 are sent");
    Ok(())
}
