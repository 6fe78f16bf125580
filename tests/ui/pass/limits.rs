//! Limits of a type's own, and those that types share.

use std::time::Duration;

use queue_core::{Context, Handler, JobResult, JobType, Limit, job};
use serde::{Deserialize, Serialize};

#[job(limit(concurrency = 10, rate = "30/1m", burst = 5), limit(name = "stripe"), limit(name = "eu.west", rate = "2/250ms"))]
#[derive(Serialize, Deserialize)]
struct Charge {
    account: u64,
}

impl Handler for Charge {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Free {}

fn main() {
    let own = Limit::job_type().concurrency(10).rate(30, Duration::from_secs(60)).burst(5);
    let west = Limit::named("eu.west").rate(2, Duration::from_millis(250));
    assert_eq!(Charge::OPTIONS.limits, [own, Limit::named("stripe"), west]);
    assert!(Free::OPTIONS.limits.is_empty());
}
