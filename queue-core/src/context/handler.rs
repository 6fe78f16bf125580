//! The code that runs a job.

use super::{Context, Durable};
use crate::define::{JobResult, JobType};

/// The code that runs a job.
///
/// `run` takes the payload by value. Its future may be dropped at any `await` (timeout, shutdown); what must not be half-done belongs
/// in a database transaction.
#[diagnostic::on_unimplemented(
    message = "the job `{Self}` has no handler",
    label = "no `impl Handler` for this job",
    note = "write `impl Handler for {Self} {{ async fn run(self, cx: &Context) -> JobResult<..> {{ .. }} }}`",
    note = "the handler of a job that says `durable` takes `cx: &Durable`",
    note = "a `BatchHandler` is one for a job that says `batch = ..`, and is registered with `register_batch`",
    note = "if its handler lives in another crate, say so: `#[job(send_only)]`"
)]
pub trait Handler: JobType<Cx: HandlerContext> {
    /// Does the work of one attempt. Any `?` is a retry; see [`Failure`](crate::Failure) for the rest.
    ///
    /// Written as `async fn run(self, cx: &Context) -> JobResult<..>`, with what `#[job(output = ..)]` declares; of a type that is
    /// [`durable`](crate::Options::durable) as `async fn run(self, cx: &Durable) -> JobResult<..>`.
    fn run(self, cx: &Self::Cx) -> impl JobFuture<Self::Output> + Send;
}

/// What a handler may be given: a [`Context`], or a [`Durable`].
#[diagnostic::on_unimplemented(message = "a handler is given a `Context` or a `Durable`", label = "neither of them")]
pub trait HandlerContext: Send + Sync + 'static {
    /// Whether its attempts go on where earlier ones ended.
    #[doc(hidden)]
    const IS_DURABLE: bool;

    #[doc(hidden)]
    fn of(cx: &Durable) -> &Self;
}

impl HandlerContext for Context {
    const IS_DURABLE: bool = false;

    fn of(cx: &Durable) -> &Self {
        cx
    }
}

impl HandlerContext for Durable {
    const IS_DURABLE: bool = true;

    fn of(cx: &Durable) -> &Self {
        cx
    }
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
