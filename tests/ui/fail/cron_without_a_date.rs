//! A date of a cron expression must occur.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(cron = "0 0 30 2 *", tz = "Europe/Berlin")]
#[derive(Default, Serialize, Deserialize)]
struct Nightly;

impl Handler for Nightly {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
