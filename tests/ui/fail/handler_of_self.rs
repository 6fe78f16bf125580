//! A handler cannot be an associated function, even if its job type is `Self`.

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
