//! The number of attempts is at most 32767.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(max_attempts = 32768)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
