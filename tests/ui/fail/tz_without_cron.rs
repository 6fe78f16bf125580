//! A time zone requires `cron`.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(every = "1h", tz = "Europe/Berlin")]
#[derive(Default, Serialize, Deserialize)]
struct Nightly;

impl Handler for Nightly {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
