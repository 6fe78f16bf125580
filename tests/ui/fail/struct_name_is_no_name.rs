//! A struct whose name is not a valid job type name needs `name`.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct Größe;

impl Handler for Größe {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
