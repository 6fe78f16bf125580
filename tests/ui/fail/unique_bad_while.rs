//! An unknown lifetime of a uniqueness key is rejected.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, unique(fields(user), while = alive))]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    month: u32,
}

fn main() {}
