//! A handler is an `async fn`.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler]
fn send_email(_: SendEmail, _: &Context) -> JobResult {
    Ok(())
}

fn main() {}
