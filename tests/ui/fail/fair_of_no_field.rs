//! A fair key can only use fields of the payload.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(fair = self.tennant, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    tenant: u64,
}

fn main() {}
