//! `fair` needs a value.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(fair, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    tenant: u64,
}

fn main() {}
