//! A rate is a count per period.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, limit(rate = "30"))]
#[derive(Serialize, Deserialize)]
struct Charge {
    account: u64,
}

fn main() {}
