//! A payload must own its data.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail<'a> {
    body: &'a str,
}

fn main() {}
