//! `upgrade` identifies the earlier version by its number, not by its name.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(version = 2, upgrade(v1 = from_v1))]
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
