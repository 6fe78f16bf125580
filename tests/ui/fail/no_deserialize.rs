//! A payload needs both serde derives, not only one.

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
