//! A handler is not an associated function, also with `Self` as its job.

use queue_core::{Context, JobResult, handler, job};
use serde::{Serialize, Deserialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

impl SendEmail {
    #[handler]
    async fn send_email(job: Self, cx: &Context) -> JobResult {
        println!("{} {}", job.to, cx.attempt());
        Ok(())
    }
}

fn main() {}
