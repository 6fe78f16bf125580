//! `seal` takes the name of a keyring as a string.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(seal(customers))]
#[derive(Serialize, Deserialize)]
struct Charge {
    card: String,
}

impl Handler for Charge {
    async fn run(self, _: &Context) -> JobResult {
        drop(self.card);
        Ok(())
    }
}

fn main() {}
