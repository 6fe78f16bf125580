//! A payload without `Serialize` is rejected, even if the derives are above the attribute and thus invisible to it.

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
