//! A batch has at least two jobs.

use queue_core::{
    JobResult,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
};
use serde::{Deserialize, Serialize};

#[job(batch = 1)]
#[derive(Serialize, Deserialize)]
struct Push;

impl BatchHandler for Push {
    async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        Ok(())
    }
}

fn main() {}
