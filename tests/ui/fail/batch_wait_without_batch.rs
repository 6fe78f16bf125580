//! `batch_wait` requires `batch`.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(batch_wait = "200ms")]
#[derive(Serialize, Deserialize)]
struct Push;

impl Handler for Push {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
