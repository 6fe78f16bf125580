//! A rate needs a count and a period.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, limit(rate = "30"))]
#[derive(Serialize, Deserialize)]
struct Charge {
    account: u64,
}

fn main() {}
