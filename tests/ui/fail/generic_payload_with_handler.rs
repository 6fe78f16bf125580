//! A generic payload causes one error, without further errors at its handler.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Serialize, Deserialize};

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail<T> {
    to: T,
}

impl Handler for SendEmail<String> {
    async fn run(self, cx: &Context) -> JobResult {
        println!("{} {}", self.to, cx.attempt());
        Ok(())
    }
}

fn main() {}
