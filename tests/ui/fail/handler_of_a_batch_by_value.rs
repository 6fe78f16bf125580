//! A handler borrows its batch.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler]
async fn send_email(_: queue_core::batch::JobBatch<SendEmail>, _: &queue_core::batch::BatchContext) -> JobResult {
    Ok(())
}

fn main() {}
