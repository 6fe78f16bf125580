//! Only the handler of a durable job takes a `Durable`.

use queue_core::{durable::Durable, JobResult, handler, job};
use serde::{Serialize, Deserialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

#[handler]
async fn send_email(job: SendEmail, cx: &Durable) -> JobResult {
    println!("{} {}", job.to, cx.attempt());
    Ok(())
}

fn main() {}
