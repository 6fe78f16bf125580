//! A payload cannot be an enum.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(queue = "mail")]
#[derive(Serialize, Deserialize)]
enum SendEmail {
    Now,
    Later,
}

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
