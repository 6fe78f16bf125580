//! A payload that implements `Default` can declare a schedule.

use std::time::Duration;

use queue_core::{Context, Handler, JobResult, JobType, job};
use serde::{Deserialize, Serialize};

#[job(cron = "30 4 * * MON-FRI", tz = "Europe/Berlin")]
#[derive(Default, Serialize, Deserialize)]
struct Nightly {
    region: Option<String>,
}

impl Handler for Nightly {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[job(every = "15m")]
#[derive(Default, Serialize, Deserialize)]
struct Often;

impl Handler for Often {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Never;

fn main() {
    assert_eq!((Nightly::OPTIONS.cron, Nightly::OPTIONS.tz), (Some("30 4 * * MON-FRI"), Some("Europe/Berlin")));
    assert_eq!(Often::OPTIONS.every, Some(Duration::from_secs(900)));
    assert!(Nightly::scheduled().is_some_and(|job| job.region.is_none()) && Often::scheduled().is_some() && Never::scheduled().is_none());
}
