//! Only the handler of a `durable` type takes a `Durable`.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler]
async fn send_email(_: SendEmail, _: &queue_core::durable::Durable) -> JobResult {
    Ok(())
}

fn main() {}
