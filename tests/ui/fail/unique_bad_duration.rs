//! An invalid duration in `unique` is rejected.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, unique(fields(user), while = "1 hour"))]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    month: u32,
}

fn main() {}
