//! A type that does not say `send_only` has a handler.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job(queue = "mail")]
#[derive(Serialize, Deserialize)]
struct SendEmail;

fn main() {}
