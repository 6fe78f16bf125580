//! A job with `batch` needs a batch handler.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(batch = 500)]
#[derive(Serialize, Deserialize)]
struct Push;

impl Handler for Push {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
