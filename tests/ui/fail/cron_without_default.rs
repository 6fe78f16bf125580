//! A scheduled payload must implement `Default`.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(cron = "30 4 * * *")]
#[derive(Serialize, Deserialize)]
struct Nightly;

impl Handler for Nightly {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
