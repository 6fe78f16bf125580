//! The method `run` of a `Handler` must be `async`.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail;

impl Handler for SendEmail {
    fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
