//! An option that takes a string rejects a number.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(queue = 5)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
