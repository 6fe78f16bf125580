//! The error for an option name from another job queue library suggests the equivalent option.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, retries = 5, delay = "1s", cron_tz = "UTC", max_retries = 5, retry = 3, concurrency = 5, rate_limit = "1/1s", throttle = 3)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[job(send_only, schedule = "0 0 * * *", timezone = "UTC", ttl = "1h", unique_for = "1h", deadline = "1h", attempts = 3, tags = "a", debounce = "1s", every = "500ms")]
#[derive(Serialize, Deserialize)]
struct Other;

fn main() {}
