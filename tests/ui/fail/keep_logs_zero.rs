//! `keep_logs` must be greater than zero.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(keep_logs = "0B", send_only)]
#[derive(Serialize, Deserialize)]
struct Import;

fn main() {}
