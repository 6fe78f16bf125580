//! The error for an unknown option of a limit suggests a similar option.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, limit(concurency = 3))]
#[derive(Serialize, Deserialize)]
struct Charge {
    account: u64,
}

fn main() {}
