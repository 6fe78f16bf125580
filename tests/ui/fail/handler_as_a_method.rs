//! A handler cannot be a method.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

struct Mailer;

impl Mailer {
    #[handler]
    async fn send_email(&self, _: SendEmail) -> JobResult {
        Ok(())
    }
}

fn main() {}
