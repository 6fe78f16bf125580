//! rustc reports an unknown field of `unique` at the name of the field.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, unique(fields(user, mont)))]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    month: u32,
}

fn main() {}
