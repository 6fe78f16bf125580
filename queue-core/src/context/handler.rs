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
    note = "a `BatchHandler` is one for a job that says `batch = ..`, and is registered with `register_batch`",
    note = "if its handler lives in another crate, say so: `#[job(send_only)]`"
)]
pub trait Handler: JobType {
    /// Does the work of one attempt. Any `?` is a retry; see [`Failure`](crate::Failure) for the rest.
    ///
    /// Written as `async fn run(self, cx: &Context) -> JobResult<..>`, with what `#[job(output = ..)]` declares.
    fn run(self, cx: &Context) -> impl JobFuture<Self::Output> + Send;
}

/// A future that ends with a [`JobResult<T>`](JobResult): every such future is one. So that a handler whose output is not the declared one is
/// told of `output`; a bound on [`Future::Output`] is answered with types alone.
#[diagnostic::on_unimplemented(
    message = "the handler returns another output than its job declares, which is `{T}`",
    label = "not `JobResult<{T}>`",
    note = "declare what the handler returns: `#[job(output = T)]`; without it, a job returns nothing"
)]
pub trait JobFuture<T>: Future<Output = JobResult<T>> {}

#[diagnostic::do_not_recommend]
impl<F: Future<Output = JobResult<T>>, T> JobFuture<T> for F {}
