//! Traits implemented by job handlers.

use super::{Context, Durable};
use crate::define::{JobResult, JobType, StateKey};

/// Handler of a job type: the code that runs each attempt.
///
/// `run` takes the payload by value. Its future may be dropped at any `await`, for example by a timeout or a shutdown. Put work that must
/// be atomic into a database transaction.
///
/// ```
/// use queue_core::{Context, Handler, JobResult, job};
/// use serde::{Deserialize, Serialize};
///
/// #[job(output = usize)]
/// #[derive(Serialize, Deserialize)]
/// struct CountWords { text: String }
///
/// impl Handler for CountWords {
///     async fn run(self, cx: &Context) -> JobResult<usize> {
///         println!("attempt {}", cx.attempt());
///         Ok(self.text.split_whitespace().count())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the job `{Self}` has no handler",
    label = "no `impl Handler` for this job",
    note = "write `impl Handler for {Self} {{ async fn run(self, cx: &Context) -> JobResult<..> {{ .. }} }}`",
    note = "the handler of a `durable` job takes `cx: &queue_core::durable::Durable`",
    note = "a job with `batch = ..` has a `BatchHandler`, which is registered with `register_batch`",
    note = "if its handler is a function with `#[handler]`, here or in another crate, use `#[job(send_only)]`"
)]
pub trait Handler: JobType<Cx: HandlerContext> {
    /// Runs one attempt. An error that `?` converts to a [`Failure`](crate::Failure) causes a retry. See `Failure` for other outcomes.
    ///
    /// Implement the method as `async fn run(self, cx: &Context) -> JobResult<T>`, where `T` is the type in `#[job(output = T)]`, or `()`
    /// without the option. For a [`durable`](crate::options::Options::durable) type, use `async fn run(self, cx: &Durable) ->
    /// JobResult<T>`.
    fn run(self, cx: &Self::Cx) -> impl JobFuture<Self::Output> + Send;
}

/// Runner for the jobs of one type. Implemented for every [`Handler`] and for the types that [`#[handler]`](crate::handler) generates.
///
/// Pass the type to `Worker::register`. Do not implement the trait by hand.
///
/// ```
/// use queue_core::{Context, JobResult, handler, job, registry::Registry};
/// use serde::{Deserialize, Serialize};
///
/// #[job(send_only)]
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail { to: String }
///
/// #[handler]
/// async fn send_email(job: SendEmail, _: &Context) -> JobResult {
///     println!("mail to {}", job.to);
///     Ok(())
/// }
///
/// # fn main() -> Result<(), queue_core::registry::RegistryError> {
/// let mut registry = Registry::new();
/// registry.register::<send_email>()?;
/// assert!(registry.get("send_email").is_some());
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "neither a job with `impl Handler` nor a function with `#[handler]`",
    note = "handlers that take a `JobBatch` are registered with `register_batch`"
)]
pub trait JobRunner: 'static {
    /// Job type of the jobs that the handler runs.
    type Job: JobType<Cx: HandlerContext>;

    /// State types that the handler requires in addition to the state types listed by the job type.
    #[doc(hidden)]
    const STATE: &'static [StateKey] = &[];

    /// Runs one attempt.
    #[doc(hidden)]
    fn run_job(job: Self::Job, cx: &<Self::Job as JobType>::Cx) -> impl JobFuture<<Self::Job as JobType>::Output> + Send;
}

#[diagnostic::do_not_recommend]
impl<T: Handler> JobRunner for T {
    type Job = T;

    fn run_job(job: T, cx: &T::Cx) -> impl JobFuture<T::Output> + Send {
        Handler::run(job, cx)
    }
}

/// Context type of a handler: [`Context`], or [`Durable`] for durable jobs.
#[diagnostic::on_unimplemented(message = "a handler takes a `Context` or a `Durable`", label = "neither of them")]
pub trait HandlerContext: Send + Sync + 'static {
    /// Whether an attempt resumes from the journal of earlier attempts.
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

/// Future whose output is a [`JobResult<T>`](JobResult). Implemented for every such future. Unlike a bound on [`Future::Output`], a bound
/// on this trait lets the compiler explain a mismatch with `#[job(output = ..)]`.
///
/// ```
/// use queue_core::{Context, Handler, JobResult, registry::JobFuture};
///
/// # #[queue_core::job] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// async fn send(to: String) -> JobResult {
///     println!("mail to {to}");
///     Ok(())
/// }
///
/// impl Handler for Email {
///     fn run(self, _: &Context) -> impl JobFuture<()> + Send {
///         send(self.to)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the handler does not return `JobResult<{T}>`",
    label = "not `JobResult<{T}>`",
    note = "a handler is an `async fn`; its output type is that of `#[job(output = ..)]`, and `()` without it",
    note = "the operator `?` converts any error into a `Failure`, the error type of `JobResult`"
)]
pub trait JobFuture<T>: Future<Output = JobResult<T>> {}

#[diagnostic::do_not_recommend]
impl<F: Future<Output = JobResult<T>>, T> JobFuture<T> for F {}
