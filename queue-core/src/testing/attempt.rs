//! Runs one attempt in a test, with the same code as a worker. A test backend replaces the database.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{runtime::Handle, sync::mpsc};
use tokio_util::sync::CancellationToken;

use super::{
    backend::{AttemptReports, TestBackend, TestSignal},
    points::InterruptPoints,
};
use crate::{
    attempt::{self, AttemptEnd, ClaimedJob, Halt},
    context::{
        CancelReason, ChildStatus, JournaledStep, LentTransaction, Middleware, Registration, Report, ReportEntry, ReportSender, Shared,
        States, StepName, WriteResult,
    },
    define::{Ending, Failure, JobId, JobType, Outcome, RestartPayload, Verdict},
    error::Error,
    results::Progress,
    schema::Store,
    seal::{OpenError, SealScope, open},
    trace::TraceRelation,
};

/// Result of one attempt in a test.
///
/// ```
/// # use std::time::Duration;
/// # use queue_core::{Context, Handler, JobResult, job, testing};
/// # #[job(backoff = fixed("1m"))] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # impl Handler for Email { async fn run(self, _: &Context) -> JobResult { Err("no connection".into()) } }
/// # async fn example() {
/// let attempt = testing::run(Email { to: "ada@example.org".into() }).await;
/// assert_eq!(attempt.retried_after(), Some(Duration::from_secs(60)));
/// assert_eq!(attempt.error.as_deref(), Some("no connection"));
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// Id of the job.
    pub id: JobId,
    /// Name of the job type.
    pub job_type: String,
    /// Number of the attempt, starting at 1.
    pub number: u32,
    /// Outcome of the handler.
    pub outcome: Outcome,
    /// Verdict that a worker would record for the outcome. Delays have no jitter, so tests can compare delays.
    pub verdict: Verdict,
    /// Error text that a worker would store.
    pub error: Option<String>,
    /// Progress reported by the attempt.
    pub progress: Progress,
    pub(super) output: Option<String>,
    pub(super) checkpoint: Option<String>,
    pub(super) steps: Vec<JournaledStep>,
    pub(super) waits_for: Vec<String>,
    /// Plaintext of the payload with which the job restarts, or the reason why the payload cannot be opened. `None` if the job does not
    /// restart.
    pub(super) restart_payload: Option<Result<String, String>>,
}

impl Attempt {
    /// Returns whether the job is completed.
    pub fn is_completed(&self) -> bool {
        self.verdict == Verdict::Complete
    }

    /// Returns whether the job is a dead letter.
    pub fn is_dead(&self) -> bool {
        matches!(self.verdict, Verdict::Dead)
    }

    /// Returns the delay before the next attempt if the attempt failed and the job is retried.
    pub fn retried_after(&self) -> Option<Duration> {
        if let Verdict::Retry(wait) = self.verdict { Some(wait) } else { None }
    }

    /// Returns the requested delay if the handler snoozed the job.
    pub fn snoozed_for(&self) -> Option<Duration> {
        if let Verdict::Snooze(wait) = self.verdict { Some(wait) } else { None }
    }

    /// Returns the signals that a parked durable job is waiting for. Any one signal ends the wait. Empty for other jobs.
    pub fn waits_for(&self) -> &[String] {
        &self.waits_for
    }

    /// Returns the output of a job of type `T`, decoded from its stored form. Returns `None` if the job has another type or is not
    /// completed.
    ///
    /// # Panics
    /// Panics if the output cannot be decoded as `T::Output`, because no reader of the result could decode the output either.
    pub fn output_of<T: JobType>(&self) -> Option<T::Output> {
        let is_of = self.job_type == T::OPTIONS.name || T::OPTIONS.aliases.contains(&self.job_type.as_str());
        (is_of && self.is_completed()).then(|| {
            serde_json::from_str(self.output.as_deref().unwrap_or("null"))
                .unwrap_or_else(|error| panic!("cannot decode the output of `{}`: {error}", T::OPTIONS.name))
        })
    }

    /// Returns the output of the step `name` of a durable job, as journaled by this or an earlier attempt. Returns `None` if the step is
    /// not journaled or is a sleep.
    ///
    /// # Panics
    /// Panics if the output cannot be decoded as `T`.
    pub fn step<T: DeserializeOwned>(&self, name: impl Into<StepName>) -> Option<T> {
        let StepName { name, .. } = name.into();
        let step = self.steps.iter().find(|step| step.name == name && step.left_ms.is_none())?;
        let decoded = serde_json::from_str(step.output.as_deref().unwrap_or("null"));
        Some(decoded.unwrap_or_else(|error| panic!("cannot decode the output of the step `{name}` as the requested type: {error}")))
    }

    /// Returns the names of all steps in the journal at the end of this attempt, including sleeps.
    pub fn journaled(&self) -> Vec<&str> {
        self.steps.iter().map(|step| step.name.as_str()).collect()
    }

    /// Returns the payload that a durable job of type `T` passed to [`Durable::restart`](crate::durable::Durable::restart), decoded from
    /// its stored form. Returns `None` if the job does not restart or has another type.
    ///
    /// # Panics
    /// Panics if the payload cannot be opened or decoded as `T`, because no worker could run the job.
    pub fn restarted_with<T: JobType>(&self) -> Option<T> {
        let is_of = self.job_type == T::OPTIONS.name || T::OPTIONS.aliases.contains(&self.job_type.as_str());
        let text = self.restart_payload.as_ref().filter(|_| is_of)?.as_ref().unwrap_or_else(|why| panic!("{why}"));
        let payload =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("cannot decode the payload of `{}`: {error}", T::OPTIONS.name));
        Some(T::from_serde(payload))
    }

    /// Returns the last checkpoint that this or an earlier attempt wrote.
    ///
    /// # Panics
    /// Panics if the checkpoint cannot be decoded as `C`.
    pub fn checkpoint<C: DeserializeOwned>(&self) -> Option<C> {
        let text = self.checkpoint.as_deref()?;
        Some(serde_json::from_str(text).unwrap_or_else(|error| panic!("cannot decode the checkpoint as the requested type: {error}")))
    }
}

/// Input of an attempt, such as the job, its journaled steps and its signals.
pub(super) struct AttemptSetup<'a> {
    pub(super) registration: &'a Registration,
    pub(super) job: &'a ClaimedJob,
    pub(super) checkpoint: Option<String>,
    pub(super) steps: Vec<JournaledStep>,
    pub(super) signals: Vec<TestSignal>,
    /// Results of child jobs, set by the test. `None` in a drain, where jobs cannot spawn children.
    pub(super) children: Option<Vec<(String, ChildStatus)>>,
    pub(super) states: States,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) pool: PgPool,
    pub(super) store: Store,
    pub(super) lent: Option<LentTransaction>,
    /// Reason to cancel the attempt at its start, if any.
    pub(super) cancel_reason: Option<CancelReason>,
    /// Counter that interrupts the attempt at one place. If set, transactions that the handler begins run on the pool and are committed.
    pub(super) points: Option<Arc<InterruptPoints>>,
}

/// Result of an attempt, with the verdict to record and the failure that the handler returned.
pub(super) struct AttemptRun {
    pub(super) attempt: Attempt,
    pub(super) ending: Ending,
    pub(super) failure: Option<Failure>,
    /// Whether the attempt reported progress or a checkpoint.
    pub(super) reported: bool,
    /// Whether the transaction that the handler began was committed.
    pub(super) kept: bool,
    pub(super) ran: Duration,
    /// Sequence numbers of the received signals.
    pub(super) received: Vec<i64>,
}

/// Grace period before the future of a cancelled handler is dropped. Equals a worker's default.
pub(super) const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// Random value that produces no jitter, so that tests can compare delays.
const NO_JITTER: f64 = 0.5;

impl AttemptSetup<'_> {
    pub(super) async fn run(self) -> AttemptRun {
        let Self { registration, job, checkpoint, steps, signals, children, states, middleware, pool, store, lent, cancel_reason, points } =
            self;
        let own = points.as_ref().map(|_| pool.clone());
        let backend = TestBackend::new(job.attempt, (checkpoint, steps, signals), lent, own);
        let backend = Arc::new(backend.with_children(children));
        let (reports, mut report_queue) = ReportSender::open();
        let shared = Arc::new(Shared {
            pool,
            store,
            states,
            handlers: Handle::current(),
            backend: Arc::<TestBackend>::clone(&backend),
            reports,
            middleware,
            trace: TraceRelation::default(),
            shutting_down: CancellationToken::new(),
        });
        let halt = Halt::new(CANCEL_GRACE);
        match cancel_reason {
            Some(CancelReason::Cancelled) => halt.cancel(job.token, job.id),
            Some(_) => {
                shared.shutting_down.cancel();
                halt.stop_request.shut_down();
            }
            None => {}
        }
        let (since, failure) = (Instant::now(), Mutex::new(None));
        let note = |failed| *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failed);
        let ended = {
            let working = attempt::run(registration, job, &shared, &halt, note);
            let working = pin!(interruptible(working, points, || backend.kept()));
            let keeping = pin!(record_reports(&mut report_queue, |entry| backend.record(entry)));
            tokio::select! {
                biased;
                ended = working => ended,
                never = keeping => match never {},
            }
        };
        backend.close().await;
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ran = since.elapsed();
        let mut outturn = AttemptRun { failure, ran, ..AttemptRun::of(ended, registration, job, ran, backend.take()) };
        outturn.attempt.restart_payload = outturn.ending.restart().map(|restart| plain_payload(restart, store));
        outturn
    }
}

fn plain_payload(restart: &RestartPayload, store: Store) -> Result<String, String> {
    match open(&restart.payload, SealScope { store, stored: &restart.stored }) {
        Ok(opened) => Ok(opened.unwrap_or_else(|| restart.payload.clone())),
        Err(OpenError::Unavailable(why) | OpenError::Invalid(why)) => Err(why),
    }
}

/// Runs the attempt `working`, and interrupts it at the place set in `points`.
async fn interruptible(
    working: impl Future<Output = AttemptEnd>,
    points: Option<Arc<InterruptPoints>>,
    kept: impl Fn() -> usize,
) -> AttemptEnd {
    match points {
        Some(points) => points.run_interruptible(working, kept).await.unwrap_or_else(AttemptEnd::interrupted),
        None => working.await,
    }
}

impl AttemptRun {
    /// Builds the result of an attempt from its outcome, its duration and its reports.
    pub(super) fn of(ended: AttemptEnd, registration: &Registration, job: &ClaimedJob, ran: Duration, notes: AttemptReports) -> Self {
        let AttemptReports { progress, checkpoint, changed, committed_ending, steps, received, .. } = notes;
        // A verdict that the handler has committed also counts if the attempt was interrupted after the commit.
        let (kept, mut outcome) = (ended.is_written() || committed_ending.is_some(), ended.outcome());
        let mut ending = ended.ending(Some(registration), job, ran, NO_JITTER);
        if let Some(committed) = committed_ending.filter(|_| kept) {
            // The verdict committed by the transaction is final. A later result of the handler is only logged.
            outcome = if committed.error().is_some() { Outcome::Terminal } else { Outcome::Ok };
            ending = committed;
        }
        let attempt = Attempt {
            id: job.id,
            job_type: job.job_type.to_owned(),
            number: job.number(),
            outcome,
            verdict: ending.verdict(),
            error: ending.error().map(str::to_owned),
            progress,
            output: ending.output().map(str::to_owned),
            checkpoint,
            steps,
            waits_for: ending.signals().to_vec(),
            restart_payload: None,
        };
        Self { attempt, ending, failure: None, reported: changed, kept, ran, received }
    }
}

/// Returns a closed pool. Acquiring a connection from the pool fails immediately.
pub(super) async fn no_pool() -> PgPool {
    let pool = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new_without_pgpass());
    pool.close().await;
    pool
}

/// Passes the reports of attempts to `note`, like the report loop of a worker.
pub(super) async fn record_reports(
    reports: &mut mpsc::UnboundedReceiver<Arc<Report>>,
    note: impl Fn(&ReportEntry),
) -> std::convert::Infallible {
    while let Some(report) = reports.recv().await {
        if let Some(entry) = report.take() {
            note(&entry);
            report.complete_write(entry, &WriteResult::Yes);
        }
    }
    std::future::pending().await
}

/// Returns whether the failure was caused by the pool from [`no_pool`].
pub(super) fn is_without_pool(failure: &Failure) -> bool {
    let mut next = failure.error().map(|error| error as &(dyn std::error::Error + 'static));
    while let Some(error) = next {
        let of_pool = matches!(error.downcast_ref(), Some(sqlx::Error::PoolClosed));
        if of_pool || matches!(error.downcast_ref(), Some(Error::Database(sqlx::Error::PoolClosed))) {
            return true;
        }
        next = error.source();
    }
    false
}
