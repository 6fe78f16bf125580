//! The conflict policy is an identifier, not a string.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, unique(fields(user), on_conflict = "keep"))]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    month: u32,
}

fn main() {}
