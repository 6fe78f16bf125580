//! A payload with only one of the derives names both.

use queue_core::{Context, JobResult, handler, job};
use serde::Serialize;

#[job(send_only)]
#[derive(Serialize)]
struct SendEmail {
    to: String,
}

#[handler]
async fn send_email(job: SendEmail, cx: &Context) -> JobResult {
    println!("{} {}", job.to, cx.attempt());
    Ok(())
}

fn main() {}
