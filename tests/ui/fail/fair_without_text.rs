//! A fair key is what can be told as text.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Tenant;

#[job(fair = self.tenant, send_only)]
#[derive(Serialize, Deserialize)]
struct Book {
    tenant: Tenant,
}

fn main() {}
