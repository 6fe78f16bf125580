//! `batch_wait` is at most one minute.

use queue_core::{
    JobResult,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
};
use serde::{Deserialize, Serialize};

#[job(batch = 500, batch_wait = "61s")]
#[derive(Serialize, Deserialize)]
struct Push;

impl BatchHandler for Push {
    async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        Ok(())
    }
}

fn main() {}
