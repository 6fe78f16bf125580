//! The first version of a job type cannot have an upgrade, because there is no earlier version.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(upgrade = from_v1)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: Vec<String>,
}

fn from_v1(to: String) -> SendEmail {
    SendEmail { to: vec![to] }
}

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
