//! The name of a job type is a named option, not a positional argument.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job("send_email")]
#[derive(Serialize, Deserialize)]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
