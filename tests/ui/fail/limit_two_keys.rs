//! `fair` and all limits of a job type must have the same key.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, limit(name = "stripe", key = self.account, concurrency = 3), limit(key = self.user, rate = "3/1s"))]
#[derive(Serialize, Deserialize)]
struct Charge {
    account: u32,
    user: u32,
}

#[job(send_only, limit(key = self.account, concurrency = 3), fair = self.user)]
#[derive(Serialize, Deserialize)]
struct Refund {
    account: u32,
    user: u32,
}

fn main() {}
