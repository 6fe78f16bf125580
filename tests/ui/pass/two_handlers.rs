//! A worker does not start if a job type has two handlers. The error names both.

use queue_core::{
    Context, Handler, JobResult, handler, job,
    registry::{Registry, RegistryError},
};
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail;

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[handler]
async fn send_email(_: SendEmail, _: &Context) -> JobResult {
    Ok(())
}

fn main() {
    let error = Registry::linked().unwrap_err();
    assert!(matches!(error, RegistryError::TwoHandlers { job_type: "send_email", .. }), "{error}");
    let text = error.to_string();
    for part in ["the job type `send_email` has two handlers", "`two_handlers::send_email`", "`two_handlers::SendEmail`"] {
        assert!(text.contains(part), "{part} in: {text}");
    }
}
