//! Version 0 does not exist.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(version = 0)]
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
