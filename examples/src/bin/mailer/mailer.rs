//! Library of `docs/GETTING_STARTED.md`: a job type and its handler.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

/// Sends an email.
#[job(max_attempts = 5, backoff = exponential("1s", max = "10m"), timeout = "30s")]
#[derive(Serialize, Deserialize)]
pub struct SendEmail {
    /// Address of the recipient.
    pub to: String,
}

impl Handler for SendEmail {
    async fn run(self, cx: &Context) -> JobResult {
        println!("attempt {}: mail to {}", cx.attempt(), self.to);
        Ok(())
    }
}
