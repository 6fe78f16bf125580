//! A handler takes its job by value.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler]
async fn send_email(_: &SendEmail, _: &Context) -> JobResult {
    Ok(())
}

fn main() {}
