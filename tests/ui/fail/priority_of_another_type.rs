//! rustc checks the type of a constant used as a priority.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(priority = BASE)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

const BASE: u8 = 5;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
