//! A job type has one name; `SendEmail<A>` and `SendEmail<B>` would share it.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail<T> {
    body: T,
}

impl<T> Handler for SendEmail<T> {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn main() {}
