//! An output needs the serde traits, because the output is stored and read by waiters.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

#[job(output = MessageId)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

struct MessageId;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult<MessageId> {
        Ok(MessageId)
    }
}

fn main() {}
