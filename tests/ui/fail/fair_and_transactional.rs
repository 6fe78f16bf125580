//! Transactional jobs are taken one by one.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(fair = self.tenant, transactional, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    tenant: u64,
}

fn main() {}
