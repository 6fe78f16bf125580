//! A job type can be deprecated. The compiler warns about its uses, but not about the expansion of `#[job]`.

#![deny(warnings)]

use queue_core::{Context, Handler, JobResult, job, registry::Registry};
use serde::{Deserialize, Serialize};

#[job(max_attempts = 1)]
#[deprecated]
#[derive(Serialize, Deserialize)]
struct Old;

#[allow(deprecated)]
impl Handler for Old {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {
    let registry = Registry::linked().unwrap();
    assert_eq!(registry.get("old").unwrap().options().max_attempts, 1);
}
