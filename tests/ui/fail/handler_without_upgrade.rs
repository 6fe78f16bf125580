//! A handler needs upgrades from all older versions of its job type, even if the job type itself is `send_only`.

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only, version = 2)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler]
async fn send_email(_: SendEmail, _: &Context) -> JobResult {
    Ok(())
}

fn main() {}
