//! A time zone is checked at compile time.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(cron = "30 4 * * *", tz = "Berlin")]
#[derive(Default, Serialize, Deserialize)]
struct Nightly;

impl Handler for Nightly {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
