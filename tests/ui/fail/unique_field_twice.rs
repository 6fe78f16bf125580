//! A field can be listed only once in `unique`.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(send_only, unique(fields(user, user)))]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    month: u32,
}

fn main() {}
