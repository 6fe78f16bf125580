//! A fair key must implement `ToString`.

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
