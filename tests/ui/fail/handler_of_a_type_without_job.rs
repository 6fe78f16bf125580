//! The first parameter of a handler must have a type with `#[job]`.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

struct Letter;

#[handler]
async fn send_letter(_: Letter, _: &Context) -> JobResult {
    Ok(())
}

fn main() {}
