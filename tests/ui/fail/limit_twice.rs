//! A job type can have only one limit without a name.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, limit(concurrency = 3), limit(rate = "3/1s"))]
#[derive(Serialize, Deserialize)]
struct Charge {
    account: u64,
}

fn main() {}
