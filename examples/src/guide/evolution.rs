//! Code blocks of `docs/EVOLUTION.md`.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

/// Version of the job until May.
#[derive(Deserialize)]
struct SendEmailV1 {
    to: String,
}

#[job(version = 2, upgrade = from_v1)]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: Vec<String>,
}

fn from_v1(old: SendEmailV1) -> SendEmail {
    SendEmail { to: vec![old.to] }
}

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        println!("to {}", self.to.join(", "));
        Ok(())
    }
}

/// Contains the block on compatibility tests. The file that the test reads does not exist, so the test is nested in a function, where it
/// never runs.
fn compatibility() {
    #[test]
    fn jobs_of_earlier_releases_are_read() {
        queue_core::testing::assert_payloads!("jobs.lock");
    }
}
