//! No lease lists transactional jobs.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, limit(concurrency = 1), transactional)]
#[derive(Serialize, Deserialize)]
struct Charge {
    account: u64,
}

fn main() {}
