//! An earlier version can have only one upgrade.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(version = 2, upgrade(1 = from_v1, 1 = from_v1))]
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
