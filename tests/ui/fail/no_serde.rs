//! A payload has both of serde's derives.

use queue_core::{Context, Handler, JobResult, job};

#[job(queue = "mail")]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
