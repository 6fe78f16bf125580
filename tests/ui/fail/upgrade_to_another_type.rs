//! An upgrade must return the payload type.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(version = 2, upgrade = from_v1)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: Vec<String>,
}

fn from_v1(to: String) -> Vec<String> {
    vec![to]
}

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
