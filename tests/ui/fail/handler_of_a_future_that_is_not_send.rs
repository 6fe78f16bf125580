//! The future of a handler must be `Send`, because it may move between threads.

#![allow(unused_imports)]

use queue_core::{Context, JobResult, handler, job};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

#[handler]
async fn send_email(_: SendEmail, cx: &Context) -> JobResult {
    let count = std::rc::Rc::new(1);
    cx.cancelled().cancelled().await;
    drop(count);
    Ok(())
}

fn main() {}
