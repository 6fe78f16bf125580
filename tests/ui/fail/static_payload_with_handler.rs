//! A payload with a borrowed field causes one error, without further errors at its handler.

use queue_core::{Context, JobResult, handler, job};
use serde::{Serialize, Deserialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: &'static str,
}

#[handler]
async fn send_email(job: SendEmail, cx: &Context) -> JobResult {
    println!("{} {}", job.to, cx.attempt());
    Ok(())
}

fn main() {}
