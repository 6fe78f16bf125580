//! A misspelt `output` causes one error, without a second error about the handler's return type.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(outptu = Vec<(u8, String)>, queue = "mail")]
#[derive(Serialize, Deserialize)]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult<Vec<(u8, String)>> {
        Ok(Vec::new())
    }
}

fn main() {}
