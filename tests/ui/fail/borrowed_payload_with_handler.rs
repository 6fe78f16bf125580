//! A payload with a lifetime is reported at the struct and at its handler.

use queue_core::{Context, JobResult, handler, job};
use serde::{Serialize, Deserialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail<'a> {
    to: &'a str,
}

#[handler]
async fn send_email(job: SendEmail<'_>, cx: &Context) -> JobResult {
    println!("{} {}", job.to, cx.attempt());
    Ok(())
}

fn main() {}
