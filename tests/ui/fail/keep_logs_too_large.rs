//! `keep_logs` is at most one mebibyte.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(keep_logs = "2MiB", send_only)]
#[derive(Serialize, Deserialize)]
struct Import;

fn main() {}
