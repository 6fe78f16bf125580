//! `limit` without options is rejected.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, limit)]
#[derive(Serialize, Deserialize)]
struct Charge {
    account: u64,
}

fn main() {}
