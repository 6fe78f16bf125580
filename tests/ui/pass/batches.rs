//! A job type can have a batch handler.

use std::time::Duration;

use queue_core::{
    JobResult, JobType,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
    registry::Registry,
};
use serde::{Deserialize, Serialize};

#[job(batch = 500, batch_wait = "200ms", output = u64)]
#[derive(Serialize, Deserialize)]
struct Push {
    device: String,
}

impl BatchHandler for Push {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        let _ = cx.job_type();
        for job in batch {
            let length = job.payload().device.len();
            job.complete(length as u64);
        }
        Ok(())
    }
}

/// Batch job that this crate only enqueues.
#[job(batch = 2, send_only)]
#[derive(Serialize, Deserialize)]
struct Elsewhere;

fn main() {
    let options = Push::OPTIONS;
    assert_eq!((options.batch, options.batch_wait), (Some(500), Duration::from_millis(200)));
    assert_eq!((Elsewhere::OPTIONS.batch, Elsewhere::OPTIONS.batch_wait), (Some(2), Duration::ZERO));
    let registry = Registry::linked().unwrap();
    assert_eq!(registry.names().map(|(name, _)| name).collect::<Vec<_>>(), ["push"]);
}
