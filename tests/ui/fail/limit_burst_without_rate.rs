//! A burst requires a rate.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, limit(concurrency = 3, burst = 5))]
#[derive(Serialize, Deserialize)]
struct Charge {
    account: u64,
}

fn main() {}
