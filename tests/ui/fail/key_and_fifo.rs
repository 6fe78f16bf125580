//! `key` and `fifo` exclude each other, because a job has only one ordering key.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(key = self.account, fifo, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    account: u64,
}

fn main() {}
