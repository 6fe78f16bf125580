//! A handler of a struct without `#[job]` causes only one error.

use queue_core::{Context, JobResult, handler};
use serde::{Serialize, Deserialize};

#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

#[handler]
async fn send_email(job: SendEmail, cx: &Context) -> JobResult {
    println!("{} {}", job.to, cx.attempt());
    Ok(())
}

fn main() {}
