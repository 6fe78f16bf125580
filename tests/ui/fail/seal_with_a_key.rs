//! `seal` takes the name of a keyring, because keys do not belong in source code.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(seal = "3q2+796tvu/erb7v3q2=")]
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
