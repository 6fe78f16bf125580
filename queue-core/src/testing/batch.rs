//! A handler of batches run inline: no database, no worker.

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
    attempt::{Attempt, CANCEL_GRACE, Outturn, keep, no_pool},
    backend::TestBackend,
    run::{check, claimed},
};
use crate::{
    attempt::{ClaimedJob, Halt, run_batch as run_attempts},
    context::{Backend, BatchHandler, CommitResult, Fence, Middleware, OwnedTransaction, Registration, ReportSender, Shared, States},
    define::{Ending, JobId},
    error::Error,
    schema::Store,
    trace::TraceRelation,
};

/// Runs the handler of these jobs inline, as one batch, without a database, each as its first attempt: say what differs, then await it.
///
/// ```
/// # use queue_core::{BatchContext, BatchHandler, Failure, JobBatch, JobResult, job, testing};
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
    RunBatch {
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

/// A batch about to be run inline; from [`run_batch`].
#[must_use = "nothing runs until this is awaited"]
pub struct RunBatch<T> {
    jobs: Vec<T>,
    states: States,
    attempt: u32,
    max_attempts: Option<u32>,
    pool: Option<PgPool>,
    middleware: Vec<Arc<dyn Middleware>>,
    shuts_down: bool,
    cancelled: Vec<usize>,
}

impl<T: BatchHandler> RunBatch<T> {
    /// What the handler gets with `cx.state::<S>()`, as `Worker::state`.
    pub fn state<S: Send + Sync + 'static>(mut self, value: S) -> Self {
        self.states.put(value);
        self
    }

    /// Runs this around the attempt of each job, as `Worker::middleware`.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Which attempt it is of each job; the first is 1. A worker would run so many together that were tried before only if
    /// [`most_together`](crate::most_together) says so.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// How many attempts each job has, instead of what its type says.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// What `cx.pool()` is. Without it that is a pool that is closed.
    pub fn pool(mut self, pool: &PgPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Runs it under a worker that is shutting down: `cx.shutting_down()` and `cx.cancelled()` have fired, and a failure is no failure.
    pub fn shutting_down(mut self) -> Self {
        self.shuts_down = true;
        self
    }

    /// The job of this number, from 0 on, was cancelled.
    pub fn cancelled(mut self, number: usize) -> Self {
        self.cancelled.push(number);
        self
    }

    /// Runs it; the same as awaiting the builder.
    ///
    /// # Panics
    /// When there is no job, a payload cannot be stored, or state is missing that `#[job(state(..))]` names: there is no such batch, and no such
    /// worker.
    pub async fn run(self) -> RanBatch<T> {
        let registration = Registration::of_batch::<T>();
        if let Err(error) = check(&registration, &self.states) {
            panic!("{error}");
        }
        assert!(!self.jobs.is_empty(), "a batch has at least one job");
        let jobs: Vec<ClaimedJob> =
            self.jobs.iter().zip(1..).map(|(job, number)| claimed(job, number, self.attempt, self.max_attempts)).collect();
        let Self { states, pool, middleware, shuts_down, cancelled, .. } = self;
        let pool = match pool {
            Some(pool) => pool,
            None => no_pool().await,
        };
        let backend = Arc::new(BatchBackend::new(&jobs));
        let (reports, mut said) = ReportSender::open();
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
            let keeping = pin!(keep(&mut said, |entry| backend.of(entry.fence.id).note(entry)));
            tokio::select! {
                biased;
                ended = working => ended,
                never = keeping => match never {},
            }
        };
        let ran = since.elapsed();
        let attempts = ended.into_iter().zip(&jobs).map(|(ended, job)| {
            let outturn = Outturn::of(ended, &registration, job, ran, backend.of(job.id).take());
            outturn.attempt
        });
        RanBatch { attempts: attempts.collect(), job: PhantomData }
    }
}

impl<T: BatchHandler> IntoFuture for RunBatch<T> {
    type Output = RanBatch<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = RanBatch<T>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<T> fmt::Debug for RunBatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunBatch").field("jobs", &self.jobs.len()).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// What came of a batch that was run inline: the [`Attempt`] of each job, in their order.
#[derive(Debug)]
pub struct RanBatch<T> {
    attempts: Vec<Attempt>,
    job: PhantomData<fn() -> T>,
}

impl<T: BatchHandler> RanBatch<T> {
    /// What was said of each completed job, read back as it is stored.
    pub fn outputs(&self) -> Vec<T::Output> {
        self.iter().filter_map(Attempt::output_of::<T>).collect()
    }
}

impl<T> Deref for RanBatch<T> {
    type Target = [Attempt];

    fn deref(&self) -> &[Attempt] {
        &self.attempts
    }
}

/// A backend for each job.
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
