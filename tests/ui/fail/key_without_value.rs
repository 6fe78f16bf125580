//! `key` needs a value.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(key, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    account: u64,
}

fn main() {}
