//! `state` takes its types in parentheses.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(state = Mailer)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

pub struct Mailer;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
