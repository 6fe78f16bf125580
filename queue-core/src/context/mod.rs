//! Types used in handlers: contexts, middleware, transactions, progress reports and the registry of job types.
//!
//! The worker creates one [`Context`] per attempt. All contexts of a worker share one `Arc<Shared>` with the data common to all attempts.

mod backend;
mod batch;
mod cancelled;
mod children;
mod decode;
mod durable;
mod fence;
mod maps;
#[cfg(feature = "testing")]
mod forms;
mod function;
mod handler;
mod journal;
mod meta;
mod middleware;
mod receive;
mod registry;
mod registry_error;
mod report;
mod revision;
mod last_journaled;
mod states;
mod transaction;
mod transactional;

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use chrono::{DateTime, Utc};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use sqlx::PgPool;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::batch::{AnyBatch, BatchJobResult};
pub(crate) use self::children::ChildRequest;
pub(crate) use self::durable::connection;
#[cfg(feature = "testing")]
pub(crate) use self::forms::PayloadForms;
pub(crate) use self::journal::{EarlyExit, TIMEOUT_SUFFIX};
pub(crate) use self::last_journaled::attempts_since;
pub(crate) use self::maps::ChunkPosition;
#[cfg(feature = "testing")]
pub(crate) use self::meta::read_meta;
pub(crate) use self::middleware::{BatchBarrier, run_with_middleware};
pub(crate) use self::transaction::{CommitState, NOT_COMPLETED, TransactionTracker};
pub(crate) use self::transactional::AttemptTransaction;
pub use self::{
    backend::{Backend, CommitResult, LentTransaction, LogEntry, OwnedTransaction},
    batch::{BatchContext, BatchHandler, BatchJob, BatchRunner, JobBatch},
    cancelled::{CancelReason, Cancelled, StopRequest},
    decode::{Upgraded, WOULD_FAIL_AGAIN, upgrade},
    durable::{Durable, StepName},
    fence::{ChildEntry, ChildStatus, ChunkEntry, CloseEntry, Fence, JournaledStep, MapProgress, ReceiveResult, SignalEntry, StepEntry},
    function::{BatchFunction, ContextAs, Function, HandlerJob, Registrar, into_context},
    handler::{Handler, HandlerContext, JobFuture, JobRunner},
    middleware::{AttemptOutput, Middleware, Next},
    receive::{Receive, ReceiveWithin},
    registry::{HandlerFuture, Registration, Registry, RegistryError},
    report::{Report, ReportEntry, ReportSender, Reporter, WriteResult},
    states::States,
    transaction::JobTransaction,
    transactional::TransactionGuard,
};
use self::{last_journaled::LastJournaled, meta::Meta};
use crate::{
    define::{JobId, Tick, stored_type},
    error::Error,
    schema::Store,
    seal::SealScope,
    trace::TraceRelation,
};

/// Context of one attempt of a job. A handler uses it for five purposes:
///
/// | purpose | methods |
/// |---|---|
/// | identify the job and the attempt | [`id`](Self::id), [`attempt`](Self::attempt), [`is_last_attempt`](Self::is_last_attempt), [`meta`](Self::meta) |
/// | use what the worker provides | [`state`](Self::state), registered with `Worker::state` |
/// | read and write the database | [`pool`](Self::pool); [`begin`](Self::begin), to commit together with the job's completion |
/// | report | [`progress`](Self::progress), [`stage`](Self::stage), [`checkpoint`](Self::checkpoint), from which the next attempt continues |
/// | end early | [`shutting_down`](Self::shutting_down), [`cancelled`](Self::cancelled) |
///
/// ```
/// use queue_core::{Context, Handler, JobResult, job};
/// use serde::{Deserialize, Serialize};
///
/// # #[derive(Clone)] struct Mailer;
/// # impl Mailer { async fn send(&self, to: &str, id: String) -> Result<(), std::io::Error> { Ok(()) } }
/// #[job(state(Mailer))]
/// #[derive(Serialize, Deserialize)]
/// struct Newsletter {
///     to: Vec<String>,
/// }
///
/// impl Handler for Newsletter {
///     async fn run(self, cx: &Context) -> JobResult {
///         let first: usize = cx.last_checkpoint().await?.unwrap_or(0);
///         for (n, to) in self.to.iter().enumerate().skip(first) {
///             if cx.shutting_down().is_cancelled() {
///                 return Err("the worker is shutting down".into()); // costs no attempt; another worker continues
///             }
///             cx.state::<Mailer>().send(to, format!("{} {n}", cx.id())).await?;
///             cx.progress((n + 1) as f64 / self.to.len() as f64);
///             cx.checkpoint(&(n + 1)).await?;
///         }
///         Ok(())
///     }
/// }
/// ```
pub struct Context {
    job_type: &'static str,
    version: u16,
    attempt: u32,
    max_attempts: u32,
    claimed_at: DateTime<Utc>,
    meta: Meta,
    /// Time by which the handler must start. Set only if a rate limit applies to the job.
    start_deadline: Option<Instant>,
    missed_start: AtomicBool,
    stop: Arc<StopRequest>,
    cancelled: OnceLock<Cancelled>,
    observes_shutdown: AtomicBool,
    shared: Arc<Shared>,
    transaction: AttemptTransaction,
    fence: Fence,
    transactions: OnceLock<Arc<TransactionTracker>>,
    reporter: OnceLock<Reporter>,
    /// Last attempt that journaled a step. Set for durable jobs only.
    last_journaled: OnceLock<LastJournaled>,
}

impl Context {
    pub(crate) fn new(
        fence: Fence,
        job_type: &'static str,
        (attempt, max_attempts): (u32, u32),
        stop: Arc<StopRequest>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            job_type,
            version: 1,
            attempt,
            max_attempts,
            claimed_at: DateTime::UNIX_EPOCH,
            meta: Meta::default(),
            start_deadline: None,
            missed_start: AtomicBool::new(false),
            stop,
            cancelled: OnceLock::new(),
            observes_shutdown: AtomicBool::new(false),
            shared,
            transaction: AttemptTransaction::default(),
            fence,
            transactions: OnceLock::new(),
            reporter: OnceLock::new(),
            last_journaled: OnceLock::new(),
        }
    }

    /// Sets the payload version, metadata, system attributes and claim time.
    pub(crate) fn set_claim(&mut self, version: u16, meta: Option<String>, system: Option<String>, at: DateTime<Utc>) {
        (self.version, self.meta, self.claimed_at) = (version, Meta::new(meta, system), at);
    }

    pub(crate) fn set_start_deadline(&mut self, deadline: Option<Instant>) {
        self.start_deadline = deadline;
    }

    /// Returns whether the start deadline has passed. If so, also marks the attempt, which then ends as interrupted.
    pub(crate) fn check_start_deadline(&self) -> bool {
        let is_late = self.start_deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.missed_start.fetch_or(is_late, Relaxed);
        is_late
    }

    /// Returns whether the attempt missed its start deadline.
    pub(crate) fn missed_start_deadline(&self) -> bool {
        self.missed_start.load(Relaxed)
    }

    /// Calls `f` with the scope of sealed payloads: the store and the stored type name of the job.
    fn with_seal_scope<T>(&self, f: impl FnOnce(SealScope<'_>) -> T) -> T {
        f(SealScope { store: self.shared.store, stored: &stored_type(self.job_type, self.version) })
    }

    pub(crate) fn report(&self) -> Option<&Arc<Report>> {
        self.reporter.get().map(Reporter::report)
    }

    /// Returns the data common to all attempts of the worker.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the job's id.
    pub fn id(&self) -> JobId {
        self.fence.id
    }

    /// Returns the stored name of the job type, which may be an alias.
    pub fn job_type(&self) -> &'static str {
        self.job_type
    }

    /// Returns the payload version with which the job was enqueued. The handler receives the payload upgraded to the current version of
    /// the type.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns the number of this attempt, starting at 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the maximum number of attempts of this job.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Returns whether a failure of this attempt makes the job a dead letter. A durable job gets further attempts if this attempt journals
    /// a step.
    pub fn is_last_attempt(&self) -> bool {
        attempts_since(self.attempt, self.last_journaled()) >= self.max_attempts
    }

    /// Returns the number of the last attempt that journaled a step. Returns `None` if no attempt has journaled a step, or if the job is
    /// not durable.
    pub(crate) fn last_journaled(&self) -> Option<i16> {
        self.last_journaled.get()?.get()
    }

    /// Returns the enqueue time of the job, by the database's clock. Retries do not change this time.
    ///
    /// ```
    /// # use queue_core::Context;
    /// # fn example(cx: &Context) {
    /// let waited = cx.claimed_at() - cx.enqueued_at(); // both by the database's clock
    /// # }
    /// ```
    pub fn enqueued_at(&self) -> DateTime<Utc> {
        self.id().enqueued_at().unwrap_or_default()
    }

    /// Returns the claim time of this attempt by the database's clock. The handler may start later, because workers claim jobs in advance.
    pub fn claimed_at(&self) -> DateTime<Utc> {
        self.claimed_at
    }

    /// Returns the metadata set with [`Enqueue::meta`](crate::Enqueue::meta); empty by default.
    ///
    /// ```
    /// # use queue_core::Context;
    /// # fn example(cx: &Context) {
    /// let tenant = cx.meta().get("tenant").and_then(|tenant| tenant.as_str());
    /// # }
    /// ```
    pub fn meta(&self) -> &Map<String, Value> {
        self.meta.entries()
    }

    /// Returns the tick of the schedule that enqueued the job, or `None` if no schedule enqueued it. The tick is the planned time, even
    /// if the job starts late.
    pub fn tick(&self) -> Option<Tick> {
        self.meta.tick()
    }

    /// Returns the token that is cancelled when this attempt must end: the job was cancelled, the grace period of the worker's shutdown
    /// has ended, or the lease was lost. [`shutting_down`](Self::shutting_down) is cancelled earlier, when the shutdown begins.
    pub fn cancelled(&self) -> &Cancelled {
        // The token is created on first use. Most handlers never call this method, and a token per attempt has a measurable cost.
        self.cancelled.get_or_init(|| Cancelled::child_of(&self.stop))
    }

    /// Returns the connection pool passed to `Worker::new`.
    pub fn pool(&self) -> &PgPool {
        &self.shared.pool
    }

    /// Reports the job's progress as a fraction from 0 to 1. Values outside this range are clamped; NaN is ignored.
    ///
    /// This method, [`stage`](Self::stage) and [`event`](Self::event) only set values in memory, so frequent calls are cheap. The worker
    /// writes the changed values of all its jobs at most every 250 ms, and once more before the attempt's verdict.
    pub fn progress(&self, fraction: f64) {
        self.reporter().progress(fraction);
    }

    /// Reports the current stage of the job as human-readable text. Only the first 200 characters are kept.
    pub fn stage(&self, stage: impl AsRef<str>) {
        self.reporter().stage(stage.as_ref());
    }

    /// Counts one event with this name; see [`Reporter::event_by`].
    pub fn event(&self, name: impl AsRef<str>) {
        self.reporter().event(name.as_ref());
    }

    /// Adds `count` events with this name; see [`Reporter::event_by`].
    pub fn event_by(&self, name: impl AsRef<str>, count: u64) {
        self.reporter().event_by(name.as_ref(), count);
    }

    /// Stores and commits a checkpoint. The next attempt reads the checkpoint with [`last_checkpoint`](Self::last_checkpoint).
    ///
    /// The checkpoint survives failures, crashes, snoozes and releases, and stays with a dead letter. Completing or cancelling the job
    /// deletes the checkpoint.
    ///
    /// # Errors
    /// Returns the errors of [`Reporter::checkpoint`]. [`Error::LeaseLost`] does not count as a failure of the attempt, because the
    /// verdict of an attempt without a lease is rejected.
    pub async fn checkpoint<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), Error> {
        self.reporter().checkpoint(value).await
    }

    /// Reads the job's last [`checkpoint`](Self::checkpoint). Returns `None` if the job has no checkpoint. Each call queries the database.
    ///
    /// # Errors
    /// Returns the errors of [`Reporter::last_checkpoint`].
    pub async fn last_checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        self.reporter().last_checkpoint().await
    }

    /// Returns the reporter of this attempt. The reporter can be cloned and moved to other threads and tasks.
    pub fn reporter(&self) -> &Reporter {
        self.reporter.get_or_init(|| {
            let report = Arc::new(Report::new(self.fence, self.shared.reports.clone()));
            Reporter::new(self.id(), report, Arc::clone(&self.shared))
        })
    }

    /// Returns the state of type `T` registered with `Worker::state`.
    ///
    /// # Panics
    /// Panics if no state of type `T` is registered. If `#[job(state(T))]` lists the type, the worker refuses to start instead.
    pub fn state<T: Send + Sync + 'static>(&self) -> &T {
        self.shared.states.expect()
    }

    /// Returns the state of type `T`, or `None` if no state of this type is registered.
    pub fn try_state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.shared.states.get()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("id", &self.id()).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Data common to all attempts of one worker.
#[doc(hidden)]
pub struct Shared {
    pub pool: PgPool,
    /// Store of the worker's jobs.
    pub store: Store,
    pub states: States,
    /// Runtime on which handlers run.
    pub handlers: Handle,
    /// Database access of attempts.
    pub backend: Arc<dyn Backend>,
    /// Sender of the channel for progress reports that have values to write.
    pub reports: ReportSender,
    /// Middleware, from the outermost to the innermost.
    pub middleware: Vec<Arc<dyn Middleware>>,
    /// Relation between attempt spans and enqueue spans: parent or link.
    pub trace: TraceRelation,
    /// Token that is cancelled when the worker begins to shut down.
    pub shutting_down: CancellationToken,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("backend", &self.backend).finish_non_exhaustive()
    }
}
