//! A key is of something.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(key, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    account: u64,
}

fn main() {}
