//! `unique` without options is rejected.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, unique)]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    month: u32,
}

fn main() {}
