//! The name is an option like others, not the first of them.

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
