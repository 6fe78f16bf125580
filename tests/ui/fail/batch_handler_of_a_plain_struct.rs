//! A struct without `#[job]` cannot be the job of a batch handler.

use queue_core::{batch::{BatchContext, JobBatch}, JobResult, handler};
use serde::{Serialize, Deserialize};

#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

#[handler]
async fn send_email(job: &mut JobBatch<SendEmail>, cx: &BatchContext) -> JobResult {
    println!("{} {}", job[0].payload().to, cx.job_type());
    Ok(())
}

fn main() {}
