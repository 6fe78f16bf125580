//! A key must implement `ToString`.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(key = self.account, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    account: Vec<u8>,
}

fn main() {}
