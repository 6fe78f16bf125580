//! Batches of jobs of one type that a single handler call runs.
//!
//! Each job of a batch has its own attempt, context and ending. This module stores the results that the handler sets, and the `attempt`
//! module converts them into endings.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::Arc,
};

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::{Cancelled, Context, JobFuture, Shared, StopRequest, decode::decode_payload};
use crate::{
    define::{Failure, JobResult, JobType, StateKey, TerminalExt as _, check_output},
    payload::encode_output,
};

/// Handler that runs several jobs of a type in one call, for example up to 500 jobs with `#[job(batch = 500)]`.
///
/// Results set with [`complete`](BatchJob::complete) or [`fail`](BatchJob::fail) are kept even if the handler then fails, panics, times out
/// or is interrupted by a shutdown. If the handler returns `Ok`, all jobs that have no result yet are completed. If it returns an error,
/// they fail. Failed jobs are retried after the backoff of their type. Retries run in smaller batches, and the last attempt runs each job
/// alone, so that one bad job does not fail other jobs. A [`Failure::terminal`] returned for the whole batch therefore makes a job a dead
/// letter only if the job ran alone. To reject one job of a batch, call [`fail`](BatchJob::fail) on that job.
///
/// The type's `timeout` applies to the whole batch. The future may be dropped at any `await`, as with [`Handler`](crate::Handler).
///
/// ```
/// use queue_core::{
///     Failure, JobResult,
///     batch::{BatchContext, BatchHandler, JobBatch},
///     job,
/// };
/// use serde::{Deserialize, Serialize};
///
/// /// One notification; up to 500 are sent in one request.
/// #[job(batch = 500, batch_wait = "200ms", timeout = "30s")]
/// #[derive(Serialize, Deserialize)]
/// struct Push {
///     device: String,
/// }
///
/// # async fn push_all(devices: Vec<&str>) -> Result<Vec<bool>, std::io::Error> { Ok(vec![true; devices.len()]) }
/// impl BatchHandler for Push {
///     async fn run(batch: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
///         let devices = batch.iter().map(|job| job.payload().device.as_str()).collect();
///         let known = push_all(devices).await?; // on an error, all jobs are retried
///         for (job, known) in batch.iter_mut().zip(known) {
///             if !known {
///                 job.fail(Failure::terminal("no such device")); // this job becomes a dead letter
///             }
///         }
///         Ok(()) // the others are completed
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the job `{Self}` has no handler for batches",
    label = "no `impl BatchHandler` for this job",
    note = "write `impl BatchHandler for {Self} {{ async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {{ .. }} }}`, with the types of `queue_core::batch`",
    note = "without `batch = ..` a job has a `Handler`, which runs one at a time"
)]
pub trait BatchHandler: JobType {
    /// Runs one attempt of each job. An error returned with `?` fails every job that has no result yet.
    ///
    /// Implement the method as `async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult`.
    fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> impl Future<Output = JobResult> + Send;
}

/// Type that runs batches of one job type. Implemented for every [`BatchHandler`], and for the types that [`#[handler]`](crate::handler)
/// generates for functions with a [`JobBatch`] parameter.
///
/// Pass the type to `Worker::register_batch`. Do not implement the trait by hand.
///
/// ```
/// use queue_core::{
///     JobResult,
///     batch::{BatchContext, JobBatch},
///     handler, job, registry::Registry,
/// };
/// use serde::{Deserialize, Serialize};
///
/// #[job(send_only, batch = 500)]
/// #[derive(Serialize, Deserialize)]
/// struct Push { device: String }
///
/// #[handler]
/// async fn push(batch: &mut JobBatch<Push>, _: &BatchContext) -> JobResult {
///     println!("{} notifications", batch.len());
///     Ok(())
/// }
///
/// # fn main() -> Result<(), queue_core::registry::RegistryError> {
/// let mut registry = Registry::new();
/// registry.register_batch::<push>()?;
/// assert!(registry.get("push").is_some());
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of batches",
    label = "neither a job with `impl BatchHandler` nor a function with `#[handler]` that takes a `JobBatch`",
    note = "other handlers are registered with `register`"
)]
pub trait BatchRunner: 'static {
    /// Job type of the jobs that the handler runs.
    type Job: JobType;

    /// State types that the handler requires in addition to the state types listed by the job type.
    #[doc(hidden)]
    const STATE: &'static [StateKey] = &[];

    /// Runs one attempt of each job.
    #[doc(hidden)]
    fn run_batch(batch: &mut JobBatch<Self::Job>, cx: &BatchContext) -> impl JobFuture<()> + Send;
}

#[diagnostic::do_not_recommend]
impl<T: BatchHandler> BatchRunner for T {
    type Job = T;

    fn run_batch(batch: &mut JobBatch<T>, cx: &BatchContext) -> impl JobFuture<()> + Send {
        BatchHandler::run(batch, cx)
    }
}

/// Jobs passed to a [`BatchHandler`]. Dereferences to a non-empty slice of [`BatchJob`]s. `#[job(batch = ..)]` sets its maximum length.
///
/// ```
/// use queue_core::{JobResult, batch::*};
///
/// # #[queue_core::job(batch = 500)] #[derive(serde::Serialize, serde::Deserialize)] struct Push { device: String }
/// impl BatchHandler for Push {
///     async fn run(batch: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
///         println!("{} notifications", batch.len());
///         for job in batch {
///             println!("job {}: push to {}", job.id(), job.payload().device);
///         }
///         Ok(())
///     }
/// }
/// ```
pub struct JobBatch<J> {
    jobs: Vec<BatchJob<J>>,
}

impl<J> Deref for JobBatch<J> {
    type Target = [BatchJob<J>];

    fn deref(&self) -> &[BatchJob<J>] {
        &self.jobs
    }
}

impl<J> DerefMut for JobBatch<J> {
    fn deref_mut(&mut self) -> &mut [BatchJob<J>] {
        &mut self.jobs
    }
}

impl<'b, J> IntoIterator for &'b JobBatch<J> {
    type Item = &'b BatchJob<J>;
    type IntoIter = std::slice::Iter<'b, BatchJob<J>>;

    fn into_iter(self) -> Self::IntoIter {
        self.jobs.iter()
    }
}

impl<'b, J> IntoIterator for &'b mut JobBatch<J> {
    type Item = &'b mut BatchJob<J>;
    type IntoIter = std::slice::IterMut<'b, BatchJob<J>>;

    fn into_iter(self) -> Self::IntoIter {
        self.jobs.iter_mut()
    }
}

impl<J> fmt::Debug for JobBatch<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobBatch").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

/// One job of a batch. Dereferences to the [`Context`] of the job's attempt: `job.id()`, `job.attempt()`, `job.meta()`, `job.cancelled()`,
/// `job.progress(..)` and `job.begin()` work as in a handler for a single job.
///
/// ```
/// use queue_core::{Failure, batch::BatchJob};
///
/// # #[queue_core::job(send_only, output = String)] #[derive(serde::Serialize, serde::Deserialize)] struct Push { device: String }
/// fn finish(job: &mut BatchJob<Push>, receipt: Option<String>) {
///     match receipt {
///         Some(receipt) => job.complete(receipt),
///         None => job.fail(Failure::terminal("no such device")),
///     }
///     println!("attempt {} of job {} has a result", job.attempt(), job.id());
/// }
/// ```
pub struct BatchJob<J> {
    payload: J,
    cx: Arc<Context>,
    /// Position of the job among the jobs claimed for the batch.
    at: usize,
    result: Option<BatchJobResult>,
}

/// Result that the handler has set for a job.
pub(crate) struct BatchJobResult {
    pub(crate) result: Result<Option<String>, Failure>,
    /// Whether a stop of the attempt had been requested when the handler failed the job or returned. Always `false` after
    /// [`BatchJob::complete`], because a stop request does not affect a completed job.
    pub(crate) stop_requested: bool,
}

impl<J> BatchJob<J> {
    /// Returns the job's payload.
    pub fn payload(&self) -> &J {
        &self.payload
    }

    /// Returns whether [`complete`](Self::complete) or [`fail`](Self::fail) was called for this job.
    pub fn is_judged(&self) -> bool {
        self.result.is_some()
    }

    /// Returns whether the attempt must end, for example because the job was cancelled; see [`Context::cancelled`]. A cancelled job is
    /// completed only by a call to [`complete`](BatchJob::complete), and not if the handler returns `Ok`.
    pub fn is_cancelled(&self) -> bool {
        self.cx.cancelled().is_cancelled()
    }

    /// Fails the job. Depending on the [`Failure`], the job is retried, snoozed or becomes a dead letter. The last call wins.
    ///
    /// If a stop of the attempt was already requested, the failure does not count: the job runs again on another worker and is not charged
    /// an attempt.
    pub fn fail(&mut self, failure: impl Into<Failure>) {
        self.result = Some(BatchJobResult { result: Err(failure.into()), stop_requested: self.cx.is_stop_requested() });
    }
}

impl<J: JobType> BatchJob<J> {
    /// Completes the job with an output. The last call wins.
    #[allow(clippy::needless_pass_by_value, reason = "the output is consumed, as if the handler returned it")]
    pub fn complete(&mut self, output: J::Output) {
        let result = encode_output(&output).terminal().and_then(|text| {
            let text = (text != "null").then_some(text);
            check_output(text.as_deref()).terminal().map(|()| text)
        });
        self.result = Some(BatchJobResult { result, stop_requested: false });
    }
}

impl<J> Deref for BatchJob<J> {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.cx
    }
}

impl<J> fmt::Debug for BatchJob<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchJob").field("id", &self.cx.id()).field("is_judged", &self.is_judged()).finish_non_exhaustive()
    }
}

/// Context of a whole batch. Each [`BatchJob`] provides the context of its own job.
///
/// ```
/// use queue_core::{JobResult, batch::*};
///
/// # struct Gateway;
/// # impl Gateway { fn send(&self, _: &[&str]) -> Result<(), std::io::Error> { Ok(()) } }
/// # #[queue_core::job(batch = 500, state(Gateway))] #[derive(serde::Serialize, serde::Deserialize)] struct Push { device: String }
/// impl BatchHandler for Push {
///     async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
///         let devices: Vec<&str> = batch.iter().map(|job| job.payload().device.as_str()).collect();
///         cx.state::<Gateway>().send(&devices)?;
///         Ok(())
///     }
/// }
/// ```
pub struct BatchContext {
    job_type: &'static str,
    cancelled: Cancelled,
    attempts: Vec<Arc<Context>>,
    shared: Arc<Shared>,
}

impl BatchContext {
    pub(crate) fn new(job_type: &'static str, stop: &Arc<StopRequest>, attempts: Vec<Arc<Context>>, shared: Arc<Shared>) -> Self {
        Self { job_type, cancelled: Cancelled::child_of(stop), attempts, shared }
    }

    /// Returns the name of the job type. If a job is stored under an alias, the job's own context returns the alias.
    pub fn job_type(&self) -> &'static str {
        self.job_type
    }

    /// Returns the cancellation token of the batch. The token is cancelled when the grace period of the worker's shutdown ends, the lease
    /// is lost, or every job of the batch is cancelled.
    pub fn cancelled(&self) -> &Cancelled {
        &self.cancelled
    }

    /// Returns a token that is cancelled when the worker begins to shut down; see [`Context::shutting_down`].
    pub fn shutting_down(&self) -> &CancellationToken {
        self.attempts.iter().for_each(|attempt| _ = attempt.shutting_down());
        &self.shared.shutting_down
    }

    /// Returns the connection pool passed to `Worker::new`.
    pub fn pool(&self) -> &PgPool {
        &self.shared.pool
    }

    /// Returns the state of type `T` registered with `Worker::state`.
    ///
    /// # Panics
    /// Panics if no state of type `T` is registered, like [`Context::state`].
    pub fn state<T: Send + Sync + 'static>(&self) -> &T {
        self.shared.states.expect()
    }

    /// Returns the state of type `T`, or `None` if no state of this type is registered.
    pub fn try_state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.shared.states.get()
    }
}

impl fmt::Debug for BatchContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchContext").field("job_type", &self.job_type).finish_non_exhaustive()
    }
}

/// Type-erased batch of jobs.
pub(crate) trait AnyBatch: Send {
    /// Decodes a payload and adds the job to the batch.
    fn add(&mut self, payload: &str, cx: &Arc<Context>, at: usize) -> Result<(), Failure>;

    /// Returns the number of jobs in the batch.
    fn count(&self) -> usize;

    fn run<'a>(&'a mut self, cx: &'a BatchContext) -> Pin<Box<dyn Future<Output = JobResult> + Send + 'a>>;

    /// Takes the result of each job, together with the job's position.
    fn take_results(&mut self) -> Vec<(usize, Option<BatchJobResult>)>;

    /// Returns the default result for jobs that the handler left without a result. Used if the handler returns `Ok`.
    fn complete_rest(&self) -> Result<Option<String>, Failure>;
}

/// Batch of jobs for the handler `H`.
struct HandledBatch<H: BatchRunner> {
    batch: JobBatch<H::Job>,
}

/// Returns an empty batch for the handler `H`.
pub(crate) fn empty<H: BatchRunner>() -> Box<dyn AnyBatch> {
    Box::new(HandledBatch::<H> { batch: JobBatch { jobs: Vec::new() } })
}

impl<H: BatchRunner> AnyBatch for HandledBatch<H> {
    fn add(&mut self, payload: &str, cx: &Arc<Context>, at: usize) -> Result<(), Failure> {
        let payload = decode_payload(payload, cx)?;
        self.batch.jobs.push(BatchJob { payload, cx: Arc::clone(cx), at, result: None });
        Ok(())
    }

    fn count(&self) -> usize {
        self.batch.jobs.len()
    }

    fn run<'a>(&'a mut self, cx: &'a BatchContext) -> Pin<Box<dyn Future<Output = JobResult> + Send + 'a>> {
        Box::pin(H::run_batch(&mut self.batch, cx))
    }

    fn take_results(&mut self) -> Vec<(usize, Option<BatchJobResult>)> {
        self.batch.jobs.iter_mut().map(|job| (job.at, job.result.take())).collect()
    }

    /// Returns a success without an output only if the output type deserializes from `null`, because a caller that waits for the job must
    /// be able to decode the output. Returns a failure for any other output type.
    fn complete_rest(&self) -> Result<Option<String>, Failure> {
        match serde_json::from_str::<<H::Job as JobType>::Output>("null") {
            Ok(_) => Ok(None),
            Err(_) => Err("the handler returned `Ok` without an output for this job; call `job.complete(output)` for each".into()),
        }
    }
}
