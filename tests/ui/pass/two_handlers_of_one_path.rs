//! Two handlers of a job type are found even if the handler functions have the same path.

use queue_core::{
    Context, JobResult, handler, job,
    registry::{Registry, RegistryError},
};
use serde::{Deserialize, Serialize};

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct SendEmail;

macro_rules! handles {
    ($text:literal) => {
        const _: () = {
            #[handler]
            async fn send_email(_: SendEmail, _: &Context) -> JobResult {
                println!($text);
                Ok(())
            }
        };
    };
}

handles!("one");
handles!("two");

fn main() {
    let error = Registry::linked().unwrap_err();
    assert!(matches!(error, RegistryError::TwoHandlers { job_type: "send_email", .. }), "{error}");
}
