//! One of serde's derives is not enough.

use queue_core::{Context, Handler, JobResult, job};
use serde::Serialize;

#[job(queue = "mail")]
#[derive(Serialize)]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
