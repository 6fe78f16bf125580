//! The fields in `unique` are identifiers, not strings.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, unique(fields("user")))]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    month: u32,
}

fn main() {}
