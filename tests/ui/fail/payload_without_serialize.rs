//! The derives may stand above the attribute, where it does not see them.

use queue_core::{Context, JobResult, handler, job};
use serde::Deserialize;

#[derive(Deserialize)]
#[job(send_only, key = self.to, unique(fields(to)))]
struct SendEmail {
    to: String,
}

#[handler]
async fn send_email(job: SendEmail, cx: &Context) -> JobResult {
    println!("{} {}", job.to, cx.attempt());
    Ok(())
}

fn main() {}
