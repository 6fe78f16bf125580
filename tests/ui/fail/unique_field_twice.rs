//! A field may be listed only once.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, unique(fields(user, user)))]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    month: u32,
}

fn main() {}
