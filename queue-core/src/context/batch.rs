//! Many jobs of one type, handed to one handler: what it sees of them, and what it says of each.
//!
//! Every job of a batch has an attempt of its own, with its own context and its own ending. This file keeps what the handler says; what
//! follows from it is decided where attempts are run.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::Arc,
};

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::{Ask, Cancelled, Context, Shared, decode::read};
use crate::{
    define::{Failure, JobResult, JobType, TerminalExt as _, check_output},
    payload::encode_output,
};

/// The code that runs jobs of a type many at a time: `#[job(batch = 500)]`.
///
/// What it says of a job with [`complete`](BatchJob::complete) or [`fail`](BatchJob::fail) stays, whatever becomes of the rest: an error, a
/// panic, a timeout, a shutdown. Of jobs of which it said nothing, `Ok` completes all, and an error is the failure of each: each is tried again
/// after its type's backoff, in smaller batches, and the last time alone, so that one bad job takes no others with it. So an error that no further
/// try mends ([`Failure::terminal`]) makes a dead letter only of a job that ran alone; say it of the job that it is about.
///
/// The type's `timeout` is for the batch. Its future may be dropped at any `await`, as a [`Handler`](crate::Handler)'s.
///
/// ```
/// use queue_core::{BatchContext, BatchHandler, Failure, JobBatch, JobResult, job};
/// use serde::{Deserialize, Serialize};
///
/// /// One notification; up to 500 go out in one request.
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
///         let known = push_all(devices).await?; // an error: all are tried again
///         for (job, known) in batch.iter_mut().zip(known) {
///             if !known {
///                 job.fail(Failure::terminal("no such device")); // this one is a dead letter
///             }
///         }
///         Ok(()) // the others are completed
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the job `{Self}` has no handler for batches",
    label = "no `impl BatchHandler` for this job",
    note = "write `impl BatchHandler for {Self} {{ async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {{ .. }} }}`",
    note = "without `batch = ..` a job has a `Handler`, which runs one at a time"
)]
pub trait BatchHandler: JobType {
    /// Does the work of one attempt of each job. Any `?` is a failure of all of which nothing was said.
    ///
    /// Written as `async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult`.
    fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> impl Future<Output = JobResult> + Send;
}

/// The jobs that a [`BatchHandler`] is given: a slice of [`BatchJob`]s, at least one, at most as many as `#[job(batch = ..)]` says.
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

/// One job of a batch. It is its attempt's [`Context`]: `job.id()`, `job.attempt()`, `job.meta()`, `job.cancelled()`, `job.progress(..)`,
/// `job.begin()`, each as in a handler of its own.
pub struct BatchJob<J> {
    payload: J,
    cx: Arc<Context>,
    /// Its place among the jobs that were claimed for the batch.
    at: usize,
    said: Option<Said>,
}

/// What was said of a job.
pub(crate) struct Said {
    pub(crate) result: Result<Option<String>, Failure>,
    /// The handler had been asked to end by then.
    pub(crate) asked: bool,
}

impl<J> BatchJob<J> {
    /// What it was enqueued with.
    pub fn payload(&self) -> &J {
        &self.payload
    }

    /// Whether [`complete`](Self::complete) or [`fail`](Self::fail) was said of it.
    pub fn is_judged(&self) -> bool {
        self.said.is_some()
    }

    /// Whether somebody has cancelled it, or the attempt must end now for another reason: see [`Context::cancelled`]. A cancelled job is
    /// completed only by [`complete`](BatchJob::complete).
    pub fn is_cancelled(&self) -> bool {
        self.cx.cancelled().is_cancelled()
    }

    /// This job failed: it is tried again, put off or a dead letter, as the [`Failure`] says. What is said last counts.
    ///
    /// After the handler was asked to end, a failure is none: the job runs again elsewhere, and nothing is charged.
    pub fn fail(&mut self, failure: impl Into<Failure>) {
        self.said = Some(Said { result: Err(failure.into()), asked: self.cx.is_asked() });
    }
}

impl<J: JobType> BatchJob<J> {
    /// This job is completed, with this output. What is said last counts.
    #[allow(clippy::needless_pass_by_value, reason = "an output is given away, as a handler returns it")]
    pub fn complete(&mut self, output: J::Output) {
        let result = encode_output(&output).terminal().and_then(|text| {
            let text = (text != "null").then_some(text);
            check_output(text.as_deref()).terminal().map(|()| text)
        });
        self.said = Some(Said { result, asked: false });
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

/// What all jobs of a batch have in common, as its handler sees it. What is one job's own is its [`BatchJob`]'s.
pub struct BatchContext {
    job_type: &'static str,
    cancelled: Cancelled,
    attempts: Vec<Arc<Context>>,
    shared: Arc<Shared>,
}

impl BatchContext {
    pub(crate) fn new(job_type: &'static str, ask: &Arc<Ask>, attempts: Vec<Arc<Context>>, shared: Arc<Shared>) -> Self {
        Self { job_type, cancelled: Cancelled::under(ask), attempts, shared }
    }

    /// The name of the jobs' type. A job may be stored under an alias: its own context says which.
    pub fn job_type(&self) -> &'static str {
        self.job_type
    }

    /// Fires when the batch must end now: the grace period of the worker's shutdown has ended, or the worker has lost its right to the jobs, or
    /// every one of them was cancelled.
    pub fn cancelled(&self) -> &Cancelled {
        &self.cancelled
    }

    /// Fires when the worker begins to shut down, for the batch as [`Context::shutting_down`] for an attempt.
    pub fn shutting_down(&self) -> &CancellationToken {
        self.attempts.iter().for_each(|attempt| _ = attempt.shutting_down());
        &self.shared.shutting_down
    }

    /// The worker's pool, the one given to `Worker::new`.
    pub fn pool(&self) -> &PgPool {
        &self.shared.pool
    }

    /// The state of type `T` given to `Worker::state`.
    ///
    /// # Panics
    /// As [`Context::state`].
    pub fn state<T: Send + Sync + 'static>(&self) -> &T {
        self.shared.states.known()
    }

    /// The state of type `T`, if the worker was given one.
    pub fn try_state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.shared.states.get()
    }
}

impl fmt::Debug for BatchContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchContext").field("job_type", &self.job_type).finish_non_exhaustive()
    }
}

/// A batch of any type.
pub(crate) trait AnyBatch: Send {
    /// Reads a payload, and adds its job.
    fn add(&mut self, payload: &str, cx: &Arc<Context>, at: usize) -> Result<(), Failure>;

    /// How many jobs it has.
    fn count(&self) -> usize;

    /// Runs the handler.
    fn run<'a>(&'a mut self, cx: &'a BatchContext) -> Pin<Box<dyn Future<Output = JobResult> + Send + 'a>>;

    /// What was said of each job, by its place.
    fn said(&mut self) -> Vec<(usize, Option<Said>)>;

    /// What is said of a job by the handler's `Ok`.
    fn complete_rest(&self) -> Result<Option<String>, Failure>;
}

/// An empty one for jobs of type `J`.
pub(crate) fn empty<J: BatchHandler>() -> Box<dyn AnyBatch> {
    Box::new(JobBatch::<J> { jobs: Vec::new() })
}

impl<J: BatchHandler> AnyBatch for JobBatch<J> {
    fn add(&mut self, payload: &str, cx: &Arc<Context>, at: usize) -> Result<(), Failure> {
        let payload = read(payload, cx)?;
        self.jobs.push(BatchJob { payload, cx: Arc::clone(cx), at, said: None });
        Ok(())
    }

    fn count(&self) -> usize {
        self.jobs.len()
    }

    fn run<'a>(&'a mut self, cx: &'a BatchContext) -> Pin<Box<dyn Future<Output = JobResult> + Send + 'a>> {
        Box::pin(J::run(self, cx))
    }

    fn said(&mut self) -> Vec<(usize, Option<Said>)> {
        self.jobs.iter_mut().map(|job| (job.at, job.said.take())).collect()
    }

    /// Whoever waits for an output must find one: without it, only what reads as nothing.
    fn complete_rest(&self) -> Result<Option<String>, Failure> {
        match serde_json::from_str::<J::Output>("null") {
            Ok(_) => Ok(None),
            Err(_) => Err("the handler returned `Ok` without an output of this job; say `job.complete(output)` of each".into()),
        }
    }
}
