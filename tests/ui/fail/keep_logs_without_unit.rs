//! The size in `keep_logs` needs a unit.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(keep_logs = 65536, send_only)]
#[derive(Serialize, Deserialize)]
struct Import;

fn main() {}
