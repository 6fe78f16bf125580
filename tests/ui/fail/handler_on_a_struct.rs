//! The attribute `handler` belongs on a function.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler]
struct Letter;

fn main() {}
