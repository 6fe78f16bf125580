//! A job type with a handler and a version greater than 1 needs an upgrade, because jobs of earlier versions may still be queued.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(version = 3)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: Vec<String>,
}

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
