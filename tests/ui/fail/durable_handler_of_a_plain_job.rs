use queue_core::{Handler, JobResult, durable::Durable, job};
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct Ship {
    order: i64,
}

impl Handler for Ship {
    async fn run(self, _: &Durable) -> JobResult {
        Ok(())
    }
}

fn main() {}
