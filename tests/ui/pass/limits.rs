//! A limit can belong to one job type, be shared by several job types, or apply per key.

use std::time::Duration;

use queue_core::{Context, Handler, JobResult, JobType, job, options::Limit};
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

#[job(send_only, limit(name = "account", key = self.account, concurrency = 3), limit(key = self.account, rate = "30/1m"))]
#[derive(Serialize, Deserialize)]
struct OfAccount {
    account: u64,
}

#[job(send_only, fair = self.account, limit(name = "account", key = self.account))]
#[derive(Serialize, Deserialize)]
struct Fair {
    account: u64,
}

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Free {}

fn main() {
    let own = Limit::job_type().concurrency(10).rate(30, Duration::from_secs(60)).burst(5);
    let west = Limit::named("eu.west").rate(2, Duration::from_millis(250));
    assert_eq!(Charge::OPTIONS.limits, [own, Limit::named("stripe"), west]);
    let account = Limit::named("account").concurrency(3).keyed();
    assert_eq!(OfAccount::OPTIONS.limits, [account, Limit::job_type().rate(30, Duration::from_secs(60)).keyed()]);
    assert!(OfAccount::OPTIONS.fair && Fair::OPTIONS.fair && Fair::OPTIONS.limits == [Limit::named("account").keyed()]);
    assert_eq!(OfAccount { account: 7 }.fair_key().as_deref(), Some("7"));
    assert_eq!(Fair { account: 8 }.fair_key().as_deref(), Some("8"));
    assert!(Free::OPTIONS.limits.is_empty());
}
