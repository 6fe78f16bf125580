//! A renamed crate needs `crate = ..`.

extern crate queue_core as jobs;

use jobs::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(queue = "mail")]
#[derive(Serialize, Deserialize)]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
