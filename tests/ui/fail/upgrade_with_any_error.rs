//! The error type of an upgrade must be `&'static str`, because a value of another type might contain the payload.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(version = 2, upgrade = from_v1)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: Vec<String>,
}

fn from_v1(to: String) -> Result<SendEmail, String> {
    Err(to)
}

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
