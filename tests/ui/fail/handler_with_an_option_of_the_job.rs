//! Options of the job type belong in the attribute `job` of the payload, not in the attribute `handler`.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler(queue = "mail")]
async fn send_email(_: SendEmail, _: &Context) -> JobResult {
    Ok(())
}

fn main() {}
