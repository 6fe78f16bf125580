//! A batch has at least two jobs.

use queue_core::{BatchContext, BatchHandler, JobBatch, JobResult, job};
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
