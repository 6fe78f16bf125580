//! A handler returns the output that its job type declares.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler]
async fn send_email(_: SendEmail, _: &Context) -> JobResult<u64> {
    Ok(17)
}

fn main() {}
