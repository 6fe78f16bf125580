//! `keep_logs` cannot be combined with `batch`, because a job in a batch has no log of its own.

use queue_core::{
    JobResult,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
};
use serde::{Deserialize, Serialize};

#[job(batch = 500, keep_logs = "64KiB")]
#[derive(Serialize, Deserialize)]
struct Push;

impl BatchHandler for Push {
    async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        Ok(())
    }
}

fn main() {}
