//! A payload owns what it holds.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail<'a> {
    body: &'a str,
}

fn main() {}
