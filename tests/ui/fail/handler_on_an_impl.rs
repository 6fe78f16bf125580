//! The attribute `handler` is rejected on an `impl Handler`, which needs no attribute.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler]
impl queue_core::Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
