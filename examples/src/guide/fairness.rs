//! Code block of `docs/FAIRNESS.md`.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[rustfmt::skip]
#[job(fair = self.tenant)]
#[derive(Serialize, Deserialize)]
struct Render { tenant: String, page: u32 }

impl Handler for Render {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}
