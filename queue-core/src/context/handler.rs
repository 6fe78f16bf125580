//! The code that runs a job.

use super::Context;
use crate::define::{JobResult, JobType};

/// The code that runs a job.
///
/// `run` takes the payload by value. Its future may be dropped at any `await` (timeout, shutdown); what must not be half-done belongs
/// in a database transaction.
#[diagnostic::on_unimplemented(
    message = "the job `{Self}` has no handler",
    label = "no `impl Handler` for this job",
    note = "write `impl Handler for {Self} {{ async fn run(self, cx: &Context) -> JobResult<..> {{ .. }} }}`",
    note = "if its handler lives in another crate, say so: `#[job(send_only)]`"
)]
pub trait Handler: JobType {
    /// Does the work of one attempt. Any `?` is a retry; see [`Failure`](crate::Failure) for the rest.
    fn run(self, cx: &Context) -> impl Future<Output = JobResult<Self::Output>> + Send;
}
