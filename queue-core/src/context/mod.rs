//! What a running handler can ask for.
//!
//! The worker builds one context an attempt. Everything shared by all attempts sits behind one `Arc`.

mod backend;
mod batch;
mod cancelled;
mod children;
mod decode;
mod durable;
mod fence;
mod gathers;
#[cfg(feature = "testing")]
mod forms;
mod handler;
mod journal;
mod meta;
mod middleware;
mod receive;
mod registry;
mod registry_error;
mod report;
mod revision;
mod since;
mod states;
mod transaction;
mod whole;

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

pub(crate) use self::batch::{AnyBatch, Said};
pub(crate) use self::children::NewChild;
pub(crate) use self::durable::connection;
#[cfg(feature = "testing")]
pub(crate) use self::forms::PayloadForms;
pub(crate) use self::gathers::NewChunk;
pub(crate) use self::journal::{END, Stop};
#[cfg(feature = "testing")]
pub(crate) use self::meta::read_meta;
pub(crate) use self::middleware::{Place, run_within};
pub(crate) use self::since::attempts_since;
pub(crate) use self::transaction::{Begun, CommitState, NOT_COMPLETED};
pub(crate) use self::whole::WholeTransaction;
pub use self::{
    backend::{Backend, CommitResult, Lent, LogEntry, OwnTransaction},
    batch::{BatchContext, BatchHandler, BatchJob, JobBatch},
    cancelled::{Ask, CancelReason, Cancelled},
    decode::{Upgraded, upgrade},
    durable::{Durable, StepName},
    fence::{ChildEntry, ChildLook, ChunkEntry, CloseEntry, Fence, GatherLook, Heard, JournaledStep, SignalEntry, StepEntry},
    handler::{Handler, HandlerContext, JobFuture},
    middleware::{AttemptOutput, Middleware, Next},
    receive::{Receive, ReceiveWithin},
    registry::{HandlerFuture, Registration, Registry, RegistryError},
    report::{Report, ReportEntry, ReportSender, Reporter, Written},
    states::States,
    transaction::JobTransaction,
    whole::TransactionGuard,
};
use self::{meta::Meta, since::LastJournaled};
use crate::{
    define::{Failure, JobId, Tick, stored_type},
    error::Error,
    schema::Store,
    seal::Bound,
    trace::TraceRelation,
};

/// One attempt of one job, as its handler sees it.
pub struct Context {
    job_type: &'static str,
    version: u16,
    attempt: u32,
    max_attempts: u32,
    claimed_at: DateTime<Utc>,
    meta: Meta,
    /// The handler begins by then or not at all, if a rate says so; and whether it came too late.
    room_until: Option<Instant>,
    came_late: AtomicBool,
    ask: Arc<Ask>,
    cancelled: OnceLock<Cancelled>,
    heeds_shutdown: AtomicBool,
    shared: Arc<Shared>,
    transaction: WholeTransaction,
    fence: Fence,
    begun: OnceLock<Arc<Begun>>,
    reporter: OnceLock<Reporter>,
    /// Of a durable job.
    journaled: OnceLock<LastJournaled>,
}

impl Context {
    pub(crate) fn new(
        fence: Fence,
        job_type: &'static str,
        (attempt, max_attempts): (u32, u32),
        ask: Arc<Ask>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            job_type,
            version: 1,
            attempt,
            max_attempts,
            claimed_at: DateTime::UNIX_EPOCH,
            meta: Meta::default(),
            room_until: None,
            came_late: AtomicBool::new(false),
            ask,
            cancelled: OnceLock::new(),
            heeds_shutdown: AtomicBool::new(false),
            shared,
            transaction: WholeTransaction::default(),
            fence,
            begun: OnceLock::new(),
            reporter: OnceLock::new(),
            journaled: OnceLock::new(),
        }
    }

    /// Sets the version, metadata, system attributes and claim time.
    pub(crate) fn set_claimed(&mut self, version: u16, meta: Option<String>, system: Option<String>, at: DateTime<Utc>) {
        (self.version, self.meta, self.claimed_at) = (version, Meta::new(meta, system), at);
    }

    pub(crate) fn set_room(&mut self, until: Option<Instant>) {
        self.room_until = until;
    }

    /// To be asked before the handler begins: whether it may not any more. Whoever runs the attempt sees it and ends it.
    pub(crate) fn comes_too_late(&self) -> bool {
        let is_late = self.room_until.is_some_and(|until| Instant::now() >= until);
        self.came_late.fetch_or(is_late, Relaxed);
        is_late
    }

    /// Whether that was so.
    pub(crate) fn came_too_late(&self) -> bool {
        self.came_late.load(Relaxed)
    }

    /// What is done with where its payload is stored.
    fn with_place<T>(&self, act: impl FnOnce(Bound<'_>) -> T) -> T {
        act(Bound { store: self.shared.store, stored: &stored_type(self.job_type, self.version) })
    }

    pub(crate) fn begun(&self) -> Option<&Arc<Begun>> {
        self.begun.get()
    }

    pub(crate) fn report(&self) -> Option<&Arc<Report>> {
        self.reporter.get().map(Reporter::report)
    }

    /// What all attempts of its worker share.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.fence.id
    }

    /// The name that the job's type is stored under, which may be an alias.
    pub fn job_type(&self) -> &'static str {
        self.job_type
    }

    /// The version of the payload as it was enqueued; the handler is given it upgraded to its type's own.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The number of this attempt; the first is 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How many attempts this job has in all.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Whether a failure of this attempt makes the job a dead letter; of a durable job: unless it journals a step before.
    pub fn is_last_attempt(&self) -> bool {
        attempts_since(self.attempt, self.last_journaled()) >= self.max_attempts
    }

    /// The attempt that journaled last, if any did: of a durable job.
    pub(crate) fn last_journaled(&self) -> Option<i16> {
        self.journaled.get()?.get()
    }

    /// When the job was enqueued, by the database's clock; whatever became of it since.
    ///
    /// ```
    /// # use queue_core::Context;
    /// # fn example(cx: &Context) {
    /// let waited = cx.claimed_at() - cx.enqueued_at(); // both by one clock: the worker's may be wrong
    /// # }
    /// ```
    pub fn enqueued_at(&self) -> DateTime<Utc> {
        self.id().enqueued_at().unwrap_or_default()
    }

    /// When this attempt was claimed, by the database's clock. Its handler may begin later: jobs are claimed some ahead.
    pub fn claimed_at(&self) -> DateTime<Utc> {
        self.claimed_at
    }

    /// The metadata that the job was enqueued with, as [`Enqueue::meta`](crate::Enqueue::meta) gave it; empty if it has none.
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

    /// Returns the tick of a schedule that enqueued the job, if one did: the time for which it runs, however late that is.
    pub fn tick(&self) -> Option<Tick> {
        self.meta.tick()
    }

    /// Fires when the attempt must end now, and says why: the job was cancelled, or the grace period of the worker's shutdown has ended, or the
    /// worker has lost its right to this job. [`shutting_down`](Self::shutting_down) fires at the shutdown's begin.
    pub fn cancelled(&self) -> &Cancelled {
        // Made when first asked for: most handlers never do, and a token of its own for each attempt shows in a profile.
        self.cancelled.get_or_init(|| Cancelled::under(&self.ask))
    }

    /// The worker's pool, the one given to `Worker::new`.
    pub fn pool(&self) -> &PgPool {
        &self.shared.pool
    }

    /// Begins a transaction on the worker's pool that ends this job with its commit: see [`JobTransaction`]. What is written and enqueued on it is
    /// committed together with the job's completion, or not at all.
    ///
    /// A handler that began one completes the job by it: if it returns `Ok` without [`JobTransaction::complete`], the attempt has failed. Errors
    /// and panics before the commit roll back and are tried again as ever. Its isolation is `read committed`; do not end it in SQL.
    ///
    /// It takes one of the pool's connections until it ends: do slow work before it, and let the pool have as many as handlers that begin one.
    ///
    /// This is for any job type, at any point of its handler. A type that is [`transactional`](crate::Options::transactional) has one
    /// transaction for the whole attempt instead, [`Context::transaction`], and nothing to complete.
    ///
    /// # Errors
    /// [`Error::Transactional`] for such a type, [`Error::LeaseLost`] when the job is over already, and what the pool says.
    pub async fn begin(&self) -> Result<JobTransaction, Error> {
        if self.transaction.has_begun() {
            return Err(Error::Transactional { job: self.id() });
        }
        JobTransaction::begin(self.begun_by()).await
    }

    fn begun_by(&self) -> &Arc<Begun> {
        let report = self.reporter().report();
        self.begun.get_or_init(|| Arc::new(Begun::new(self.fence, Arc::clone(&self.shared), Arc::clone(report))))
    }

    pub(crate) async fn begin_transaction(&self) -> Result<(), Error> {
        self.transaction.begin(self.begun_by()).await
    }

    pub(crate) async fn commit_transaction(&self, output: Option<&str>) -> Result<(), Failure> {
        self.transaction.commit(output).await
    }

    /// The transaction that completes this job, if its type is [`transactional`](crate::Options::transactional): what is written on it, and what is
    /// enqueued on it, is committed together with the job's completion, or not at all.
    ///
    /// One guard at a time: a second call waits until the first one's guard is dropped. Statements on it go as on any connection of yours;
    /// do not end the transaction yourself, and begin nested ones with `begin` of the guard, not in SQL.
    ///
    /// Other types have [`Context::begin`], which begins a transaction when the handler wants one, and commits when it says so.
    ///
    /// # Panics
    /// When the type is not transactional.
    pub async fn transaction(&self) -> TransactionGuard<'_> {
        let guard = self.transaction.lock().await;
        guard.unwrap_or_else(|| panic!("this job has no transaction: say `#[job(transactional)]` of its type"))
    }

    /// Says how far the job is, from 0 to 1, to whoever looks: its handle, the command line, SQL. What lies outside is taken for the nearer end;
    /// NaN is ignored.
    ///
    /// This and [`stage`](Self::stage) and [`event`](Self::event) only set values in memory, so they may be said as often as is convenient: what
    /// has changed is written, for all jobs of the process together, at most every 250 ms, and once more before the attempt's verdict.
    pub fn progress(&self, fraction: f64) {
        self.reporter().progress(fraction);
    }

    /// Says what the job does now, for people: at most 200 characters are kept.
    pub fn stage(&self, stage: impl AsRef<str>) {
        self.reporter().stage(stage.as_ref());
    }

    /// Counts one event of this name; see [`Reporter::event_by`].
    pub fn event(&self, name: impl AsRef<str>) {
        self.reporter().event(name.as_ref());
    }

    /// Counts so many events of this name; see [`Reporter::event_by`].
    pub fn event_by(&self, name: impl AsRef<str>, count: u64) {
        self.reporter().event_by(name.as_ref(), count);
    }

    /// Keeps this value for the job's next attempt, which gets it from [`last_checkpoint`](Self::last_checkpoint); when this returns, it is committed.
    ///
    /// It is kept over failures, crashes, snoozes and releases, and with a dead letter. It goes when the job is completed or cancelled.
    ///
    /// # Errors
    /// As [`Reporter::checkpoint`]: above all [`Error::LeaseLost`] when others have the job, which is no failure of the attempt.
    pub async fn checkpoint<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), Error> {
        self.reporter().checkpoint(value).await
    }

    /// What the job's last [`checkpoint`](Self::checkpoint) was, or `None`. It is read when asked for.
    ///
    /// # Errors
    /// As [`Reporter::last_checkpoint`].
    pub async fn last_checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        self.reporter().last_checkpoint().await
    }

    /// What reports on this attempt, for a thread or a task of the handler's own.
    pub fn reporter(&self) -> &Reporter {
        self.reporter.get_or_init(|| {
            let report = Arc::new(Report::new(self.fence, self.shared.reports.clone()));
            Reporter::new(self.id(), report, Arc::clone(&self.shared))
        })
    }

    /// The state of type `T` given to `Worker::state`.
    ///
    /// # Panics
    /// When the worker was not given one. Name the type in `#[job(state(T))]` and the worker refuses to start instead.
    pub fn state<T: Send + Sync + 'static>(&self) -> &T {
        self.shared.states.known()
    }

    /// The state of type `T`, if the worker was given one.
    pub fn try_state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.shared.states.get()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("id", &self.id()).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// What all attempts of one worker share.
#[doc(hidden)]
pub struct Shared {
    pub pool: PgPool,
    /// The store that its jobs are of.
    pub store: Store,
    pub states: States,
    /// The runtime that handlers run on.
    pub handlers: Handle,
    /// What attempts ask of outside.
    pub backend: Arc<dyn Backend>,
    /// Where what handlers say of their jobs goes.
    pub reports: ReportSender,
    /// What runs around each of them, from the outermost inwards.
    pub middleware: Vec<Arc<dyn Middleware>>,
    /// How the spans of attempts stand to those of enqueues.
    pub trace: TraceRelation,
    /// Fires when the worker begins to shut down.
    pub shutting_down: CancellationToken,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("backend", &self.backend).finish_non_exhaustive()
    }
}
