use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(durable, transactional, send_only)]
#[derive(Serialize, Deserialize)]
struct Ship {
    order: i64,
}

fn main() {}
