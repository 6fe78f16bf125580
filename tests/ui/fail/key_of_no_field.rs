//! An ordering key can only use fields of the payload.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(key = self.acount, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    account: u64,
}

fn main() {}
