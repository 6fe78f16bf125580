//! An unknown policy for the dead jobs of a key is rejected.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(key = self.account, key_policy = drop, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    account: u64,
}

fn main() {}
