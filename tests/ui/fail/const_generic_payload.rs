//! A payload cannot have const parameters.

use queue_core::job;
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail<const N: usize>;

fn main() {}
