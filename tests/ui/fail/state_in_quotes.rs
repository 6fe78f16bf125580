//! `state` takes types, not strings.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(state("Mailer", Pool, "not a type"))]
#[derive(Serialize, Deserialize)]
struct SendEmail;

pub struct Mailer;

pub struct Pool;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
