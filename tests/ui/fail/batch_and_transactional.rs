//! A transactional job cannot run in a batch, because the job has its own transaction.

use queue_core::{
    JobResult,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
};
use serde::{Deserialize, Serialize};

#[job(batch = 500, transactional)]
#[derive(Serialize, Deserialize)]
struct Push;

impl BatchHandler for Push {
    async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        Ok(())
    }
}

fn main() {}
