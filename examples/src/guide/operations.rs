//! Code block of `docs/OPERATIONS.md`.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[rustfmt::skip]
#[job(retain = "1h")]
#[derive(Serialize, Deserialize)]
struct Ping { host: String }

impl Handler for Ping {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}
