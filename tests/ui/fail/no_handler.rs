//! A job type without `send_only` needs a handler.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(queue = "mail")]
#[derive(Serialize, Deserialize)]
struct SendEmail;

fn main() {}
