//! `fifo` takes no value.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(fifo = true, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    account: u64,
}

fn main() {}
