//! `unique` requires the option `fields`.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, unique(while = live))]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    month: u32,
}

fn main() {}
