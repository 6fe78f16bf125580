//! A handler must take its context by shared reference.

use queue_core::{Context, JobResult, handler, job};
use serde::{Serialize, Deserialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

#[handler]
async fn send_email(job: SendEmail, cx: &mut Context) -> JobResult {
    println!("{} {}", job.to, cx.attempt());
    Ok(())
}

fn main() {}
