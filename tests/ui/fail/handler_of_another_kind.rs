//! The parameters of a handler must match the option `batch` of its job type.

use queue_core::{
    Context, JobResult,
    batch::{BatchContext, JobBatch},
    handler, job,
};
use serde::{Deserialize, Serialize};

#[job(send_only, batch = 500)]
#[derive(Serialize, Deserialize)]
struct Push;

#[handler]
async fn push(_: Push, _: &Context) -> JobResult {
    Ok(())
}

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler]
async fn send_email(_: &mut JobBatch<SendEmail>, _: &BatchContext) -> JobResult {
    Ok(())
}

fn main() {}
