//! A handler cannot be an associated function.

use queue_core::{Context, JobResult, handler, job};
use serde::{Serialize, Deserialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

pub struct Mailer;

impl Mailer {
    #[handler]
    async fn send_email(job: SendEmail, cx: &Context) -> JobResult {
        println!("{} {}", job.to, cx.attempt());
        Ok(())
    }
}

fn main() {}
