//! All mistakes are reported together, each at its own position.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(
    name = "send email",
    aliases = ["old one", "fine"],
    queu = "mail",
    priority = 1.5,
    max_attempts = 0,
    max_attempts = 5,
    backoff = exponential("1 s", max = "10x", jitter = 2),
    timeout = 30,
    retain = "nothing",
    send_only = true,
)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
