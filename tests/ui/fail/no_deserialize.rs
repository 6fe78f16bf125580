//! A payload with only one of the two serde derives is rejected.

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
