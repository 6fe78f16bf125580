//! Runs a batch handler inline, without a database or a worker.

use std::{
    collections::HashMap,
    fmt,
    future::IntoFuture,
    marker::PhantomData,
    ops::Deref,
    pin::{Pin, pin},
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use sqlx::PgPool;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{
    attempt::{Attempt, AttemptRun, CANCEL_GRACE, no_pool, record_reports},
    backend::TestBackend,
    claimed::{check, claimed},
};
use crate::{
    attempt::{ClaimedJob, Halt, run_batch as run_attempts},
    context::{
        Backend, BatchHandler, BatchRunner, CommitResult, Fence, Middleware, OwnedTransaction, Registration, ReportSender, Shared, States,
    },
    define::{Ending, JobId, JobType},
    error::Error,
    schema::Store,
    trace::TraceRelation,
};

/// Runs the batch handler of the given jobs inline, without a database, as the first attempt of each job. Returns a builder. Awaiting the
/// builder runs the batch.
///
/// ```
/// # use queue_core::{Failure, JobResult, batch::{BatchContext, BatchHandler, JobBatch}, job, testing};
/// # use serde::{Deserialize, Serialize};
/// #[job(batch = 500)]
/// #[derive(Serialize, Deserialize)]
/// struct Push {
///     device: String,
/// }
///
/// impl BatchHandler for Push {
///     async fn run(batch: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
///         for job in batch.iter_mut().filter(|job| job.payload().device.is_empty()) {
///             job.fail(Failure::terminal("no device"));
///         }
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let ran = testing::run_batch(["a", "", "b"].map(|device| Push { device: device.into() })).await;
/// assert!(ran[0].is_completed() && ran[1].is_dead() && ran[2].is_completed());
/// # }
/// ```
pub fn run_batch<T: BatchHandler>(jobs: impl IntoIterator<Item = T>) -> RunBatch<T> {
    run_batch_with::<T>(jobs)
}

/// Runs jobs like [`run_batch`], but with a [`#[handler]`](crate::handler) function that takes a batch.
///
/// ```
/// use queue_core::{
///     JobResult,
///     batch::{BatchContext, JobBatch},
///     handler, job, testing,
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
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let ran = testing::run_batch_with::<push>(["a", "b"].map(|device| Push { device: device.into() })).await;
/// assert!(ran[0].is_completed() && ran[1].is_completed());
/// # }
/// ```
pub fn run_batch_with<H: BatchRunner>(jobs: impl IntoIterator<Item = H::Job>) -> RunBatch<H::Job> {
    RunBatch {
        registration: Registration::of_batch::<H>(),
        jobs: jobs.into_iter().collect(),
        states: States::default(),
        attempt: 1,
        max_attempts: None,
        pool: None,
        middleware: Vec::new(),
        shuts_down: false,
        cancelled: Vec::new(),
    }
}

/// Builder that runs a batch inline. Created by [`run_batch`] and [`run_batch_with`].
///
/// ```
/// # use queue_core::{JobResult, batch::{BatchContext, BatchHandler, JobBatch}, job, testing};
/// # #[job(batch = 500)] #[derive(serde::Serialize, serde::Deserialize)] struct Push { device: String }
/// # impl BatchHandler for Push { async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult { Ok(()) } }
/// # async fn example() {
/// let jobs = ["a", "b"].map(|device| Push { device: device.into() });
/// let ran = testing::run_batch(jobs).attempt(2).max_attempts(2).await;
/// assert_eq!(ran[0].number, 2);
/// # }
/// ```
#[must_use = "nothing runs until this is awaited"]
pub struct RunBatch<T> {
    registration: Registration,
    jobs: Vec<T>,
    states: States,
    attempt: u32,
    max_attempts: Option<u32>,
    pool: Option<PgPool>,
    middleware: Vec<Arc<dyn Middleware>>,
    shuts_down: bool,
    cancelled: Vec<usize>,
}

impl<T: JobType> RunBatch<T> {
    /// Adds the state returned by `cx.state::<S>()`, like `Worker::state`.
    pub fn state<S: Send + Sync + 'static>(mut self, value: S) -> Self {
        self.states.put(value);
        self
    }

    /// Adds middleware around the attempt of each job, like `Worker::middleware`.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Sets the attempt number of every job. Defaults to 1. Unlike a worker, the builder does not limit the number of retried jobs in one
    /// batch to [`most_together`](crate::batch::most_together).
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// Sets the maximum number of attempts of every job, instead of the maximum of the job type.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// Sets the pool returned by `cx.pool()`. Defaults to a closed pool.
    pub fn pool(mut self, pool: &PgPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Simulates a worker that is shutting down: the tokens of `cx.shutting_down()` and `cx.cancelled()` are cancelled, and a failed
    /// attempt is not charged.
    pub fn shutting_down(mut self) -> Self {
        self.shuts_down = true;
        self
    }

    /// Marks a job of the batch as cancelled. `number` is the index of the job, starting at 0.
    pub fn cancelled(mut self, number: usize) -> Self {
        self.cancelled.push(number);
        self
    }

    /// Runs the batch. Awaiting the builder has the same effect.
    ///
    /// # Panics
    /// Panics if there are no jobs, if a payload cannot be stored, or if state named by `#[job(state(..))]` is missing. These cases
    /// cannot occur in a worker.
    pub async fn run(self) -> BatchRunResult<T> {
        if let Err(error) = check(&self.registration, &self.states) {
            panic!("{error}");
        }
        assert!(!self.jobs.is_empty(), "a batch has at least one job");
        let jobs: Vec<ClaimedJob> =
            self.jobs.iter().zip(1..).map(|(job, number)| claimed(job, number, self.attempt, self.max_attempts)).collect();
        let Self { registration, states, pool, middleware, shuts_down, cancelled, .. } = self;
        let pool = match pool {
            Some(pool) => pool,
            None => no_pool().await,
        };
        let backend = Arc::new(BatchBackend::new(&jobs));
        let (reports, mut report_queue) = ReportSender::open();
        let (handlers, backend_of_all, store) = (Handle::current(), Arc::<BatchBackend>::clone(&backend), Store::default());
        let shared = Shared {
            pool,
            store,
            states,
            handlers,
            backend: backend_of_all,
            reports,
            middleware,
            trace: TraceRelation::default(),
            shutting_down: CancellationToken::new(),
        };
        let (shared, halt) = (Arc::new(shared), Halt::new(CANCEL_GRACE));
        cancelled.iter().filter_map(|number| jobs.get(*number)).for_each(|job| halt.cancel(job.token, job.id));
        if shuts_down {
            shared.shutting_down.cancel();
            halt.stop_request.shut_down();
        }
        let (since, refs) = (Instant::now(), jobs.iter().collect::<Vec<_>>());
        let ended = {
            let working = pin!(run_attempts(&registration, &refs, &shared, &halt, drop));
            let keeping = pin!(record_reports(&mut report_queue, |entry| backend.of(entry.fence.id).record(entry)));
            tokio::select! {
                biased;
                ended = working => ended,
                never = keeping => match never {},
            }
        };
        let ran = since.elapsed();
        let attempts = ended.into_iter().zip(&jobs).map(|(ended, job)| {
            let outturn = AttemptRun::of(ended, &registration, job, ran, backend.of(job.id).take());
            outturn.attempt
        });
        BatchRunResult { attempts: attempts.collect(), job: PhantomData }
    }
}

impl<T: JobType> IntoFuture for RunBatch<T> {
    type Output = BatchRunResult<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = BatchRunResult<T>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<T> fmt::Debug for RunBatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunBatch").field("jobs", &self.jobs.len()).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Result of a batch that was run inline. Dereferences to a slice with the [`Attempt`] of each job, in the order of the jobs.
///
/// ```
/// # use queue_core::{JobResult, batch::{BatchContext, BatchHandler, JobBatch}, job, testing};
/// # #[job(batch = 500)] #[derive(serde::Serialize, serde::Deserialize)] struct Push { device: String }
/// # impl BatchHandler for Push { async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult { Ok(()) } }
/// # async fn example() {
/// let jobs = ["a", "b"].map(|device| Push { device: device.into() });
/// let ran = testing::run_batch(jobs).await;
/// assert_eq!(ran.len(), 2);
/// assert!(ran[0].is_completed(), "{:?}", ran[0].error);
/// # }
/// ```
#[derive(Debug)]
pub struct BatchRunResult<T> {
    attempts: Vec<Attempt>,
    job: PhantomData<fn() -> T>,
}

impl<T: JobType> BatchRunResult<T> {
    /// Returns the outputs of the completed jobs, decoded from their stored form.
    pub fn outputs(&self) -> Vec<T::Output> {
        self.iter().filter_map(Attempt::output_of::<T>).collect()
    }
}

impl<T> Deref for BatchRunResult<T> {
    type Target = [Attempt];

    fn deref(&self) -> &[Attempt] {
        &self.attempts
    }
}

/// Backend of a batch, with a separate backend for each job.
#[derive(Debug)]
struct BatchBackend(HashMap<JobId, Arc<TestBackend>>);

impl BatchBackend {
    fn new(jobs: &[ClaimedJob]) -> Self {
        let nothing = || (None, Vec::new(), Vec::new());
        Self(jobs.iter().map(|job| (job.id, Arc::new(TestBackend::new(job.attempt, nothing(), None, None)))).collect())
    }

    fn of(&self, job: JobId) -> &Arc<TestBackend> {
        &self.0[&job]
    }
}

#[async_trait]
impl Backend for BatchBackend {
    async fn begin(&self, job: JobId) -> Result<OwnedTransaction, Error> {
        self.of(job).begin(job).await
    }

    async fn commit(self: Arc<Self>, tx: OwnedTransaction, fence: Fence, ending: Ending) -> CommitResult {
        Arc::clone(self.of(fence.id)).commit(tx, fence, ending).await
    }

    async fn checkpoint(&self, job: JobId) -> Result<Option<String>, Error> {
        self.of(job).checkpoint(job).await
    }
}
