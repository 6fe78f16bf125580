//! A payload without the serde derives causes one error at the struct and one at its handler.

use queue_core::{Context, JobResult, handler, job};
use serde as _;

#[job(send_only)]
struct SendEmail {
    to: String,
}

#[handler]
async fn send_email(job: SendEmail, cx: &Context) -> JobResult {
    println!("{} {}", job.to, cx.attempt());
    Ok(())
}

fn main() {}
