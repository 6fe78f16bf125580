//! Two mistakes in `unique` cause two errors.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, unique(fields(user), until = "1h", on_conflict = update))]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    month: u32,
}

fn main() {}
