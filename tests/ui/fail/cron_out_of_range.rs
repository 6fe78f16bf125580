//! A cron expression is checked at compile time.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(cron = "30 24 * * *")]
#[derive(Default, Serialize, Deserialize)]
struct Nightly;

impl Handler for Nightly {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
