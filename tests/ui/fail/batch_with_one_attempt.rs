//! A batch job needs at least two attempts, because the last attempt of a job runs alone.

use queue_core::{
    JobResult,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
};
use serde::{Deserialize, Serialize};

#[job(batch = 500, max_attempts = 1)]
#[derive(Serialize, Deserialize)]
struct Push;

impl BatchHandler for Push {
    async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        Ok(())
    }
}

fn main() {}
