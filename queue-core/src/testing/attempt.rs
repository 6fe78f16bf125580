//! One attempt in a test: what a worker runs, with a backend that stands in for the database.

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
    backend::{Notes, TestBackend, TestSignal},
    points::Points,
};
use crate::{
    attempt::{self, AttemptEnd, ClaimedJob, Halt},
    context::{
        CancelReason, ChildStatus, JournaledStep, LentTransaction, Middleware, Registration, Report, ReportEntry, ReportSender, Shared,
        States, StepName, WriteResult,
    },
    define::{Anew, Ending, Failure, JobId, JobType, Outcome, Verdict},
    error::Error,
    results::Progress,
    schema::Store,
    seal::{Bound, Unopened, open},
    trace::TraceRelation,
};

/// What came of one attempt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// The job.
    pub id: JobId,
    /// Its type's name.
    pub job_type: String,
    /// Which attempt it was; the first is 1.
    pub number: u32,
    /// What the handler made of it.
    pub outcome: Outcome,
    /// What a worker writes for that. Jitter is left out of waits, so that they can be compared.
    pub verdict: Verdict,
    /// The error's text, as a worker stores it.
    pub error: Option<String>,
    /// What the attempt said of itself.
    pub progress: Progress,
    pub(super) output: Option<String>,
    pub(super) checkpoint: Option<String>,
    pub(super) steps: Vec<JournaledStep>,
    pub(super) waits_for: Vec<String>,
    /// With what the job begins anew, in clear; or why that cannot be opened.
    pub(super) anew: Option<Result<String, String>>,
}

impl Attempt {
    /// Whether the job is completed.
    pub fn is_completed(&self) -> bool {
        self.verdict == Verdict::Complete
    }

    /// Whether the job is a dead letter.
    pub fn is_dead(&self) -> bool {
        matches!(self.verdict, Verdict::Dead)
    }

    /// The wait before the next attempt, if the job failed and is tried again.
    pub fn retried_after(&self) -> Option<Duration> {
        if let Verdict::Retry(wait) = self.verdict { Some(wait) } else { None }
    }

    /// The wait that the handler asked for, if it was a snooze.
    pub fn snoozed_for(&self) -> Option<Duration> {
        if let Verdict::Snooze(wait) = self.verdict { Some(wait) } else { None }
    }

    /// The signals that a durable job waits for, any of which ends its wait; none if it is not parked.
    pub fn waits_for(&self) -> &[String] {
        &self.waits_for
    }

    /// What a job of type `T` returned, read back as it is stored; `None` if it is of another type, or not completed.
    ///
    /// # Panics
    /// When the output cannot be read back as `T::Output`: nobody who waits for it could.
    pub fn output_of<T: JobType>(&self) -> Option<T::Output> {
        let is_of = self.job_type == T::OPTIONS.name || T::OPTIONS.aliases.contains(&self.job_type.as_str());
        (is_of && self.is_completed()).then(|| {
            serde_json::from_str(self.output.as_deref().unwrap_or("null"))
                .unwrap_or_else(|error| panic!("the output of `{}` cannot be read back: {error}", T::OPTIONS.name))
        })
    }

    /// What the step of this name of a durable job gave, whether this attempt or an earlier one did it; `None` if it is not journaled, or is a sleep.
    ///
    /// # Panics
    /// When it is no `T`.
    pub fn step<T: DeserializeOwned>(&self, name: impl Into<StepName>) -> Option<T> {
        let StepName { name, .. } = name.into();
        let step = self.steps.iter().find(|step| step.name == name && step.left_ms.is_none())?;
        let decoded = serde_json::from_str(step.output.as_deref().unwrap_or("null"));
        Some(decoded.unwrap_or_else(|error| panic!("what the step `{name}` gave does not fit the type asked for: {error}")))
    }

    /// The names of the steps that a durable job has journaled after this attempt, sleeps among them.
    pub fn journaled(&self) -> Vec<&str> {
        self.steps.iter().map(|step| step.name.as_str()).collect()
    }

    /// The payload with which a durable job of type `T` begins anew, by [`Durable::restart`](crate::Durable::restart), read back as it is stored; `None`
    /// if it does not, or is of another type.
    ///
    /// # Panics
    /// When it cannot be opened or is no `T`: no worker could run it.
    pub fn restarted_with<T: JobType>(&self) -> Option<T> {
        let is_of = self.job_type == T::OPTIONS.name || T::OPTIONS.aliases.contains(&self.job_type.as_str());
        let text = self.anew.as_ref().filter(|_| is_of)?.as_ref().unwrap_or_else(|why| panic!("{why}"));
        Some(serde_json::from_str(text).unwrap_or_else(|error| panic!("the payload of `{}` cannot be read back: {error}", T::OPTIONS.name)))
    }

    /// The job's last checkpoint after this attempt, whether it or an earlier one wrote it.
    ///
    /// # Panics
    /// When it is no `C`.
    pub fn checkpoint<C: DeserializeOwned>(&self) -> Option<C> {
        let text = self.checkpoint.as_deref()?;
        Some(serde_json::from_str(text).unwrap_or_else(|error| panic!("the checkpoint does not fit the type asked for: {error}")))
    }
}

/// What an attempt is given.
pub(super) struct Setup<'a> {
    pub(super) registration: &'a Registration,
    pub(super) job: &'a ClaimedJob,
    pub(super) checkpoint: Option<String>,
    pub(super) steps: Vec<JournaledStep>,
    pub(super) signals: Vec<TestSignal>,
    /// What children came to; none in a drain, which spawns none.
    pub(super) children: Option<Vec<(String, ChildStatus)>>,
    pub(super) states: States,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) pool: PgPool,
    pub(super) store: Store,
    pub(super) lent: Option<LentTransaction>,
    /// The worker is shutting down.
    pub(super) asked: Option<CancelReason>,
    /// Where it may be interrupted. Its own transactions are on the pool then, and are committed.
    pub(super) points: Option<Arc<Points>>,
}

/// What came of it, and what only the caller of one attempt sees.
pub(super) struct Outturn {
    pub(super) attempt: Attempt,
    pub(super) ending: Ending,
    pub(super) failure: Option<Failure>,
    /// Something was reported.
    pub(super) reported: bool,
    /// The handler's own transaction is kept.
    pub(super) kept: bool,
    pub(super) ran: Duration,
    /// The places of the signals that it received.
    pub(super) received: Vec<i64>,
}

/// A worker's default.
pub(super) const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// No jitter, so that waits can be compared.
const DICE: f64 = 0.5;

impl Setup<'_> {
    pub(super) async fn run(self) -> Outturn {
        let Self { registration, job, checkpoint, steps, signals, children, states, middleware, pool, store, lent, asked, points } = self;
        let own = points.as_ref().map(|_| pool.clone());
        let backend = TestBackend::new(job.attempt, (checkpoint, steps, signals), lent, own);
        let backend = Arc::new(backend.with_children(children));
        let (reports, mut said) = ReportSender::open();
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
        match asked {
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
            let keeping = pin!(keep(&mut said, |entry| backend.note(entry)));
            tokio::select! {
                biased;
                ended = working => ended,
                never = keeping => match never {},
            }
        };
        backend.close().await;
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ran = since.elapsed();
        let mut outturn = Outturn { failure, ran, ..Outturn::of(ended, registration, job, ran, backend.take()) };
        outturn.attempt.anew = outturn.ending.anew().map(|anew| in_clear(anew, store));
        outturn
    }
}

fn in_clear(anew: &Anew, store: Store) -> Result<String, String> {
    match open(&anew.payload, Bound { store, stored: &anew.stored }) {
        Ok(opened) => Ok(opened.unwrap_or_else(|| anew.payload.clone())),
        Err(Unopened::Here(why) | Unopened::Ever(why)) => Err(why),
    }
}

/// The attempt, which is interrupted where `points` say.
async fn interruptible(working: impl Future<Output = AttemptEnd>, points: Option<Arc<Points>>, kept: impl Fn() -> usize) -> AttemptEnd {
    match points {
        Some(points) => points.through(working, kept).await.unwrap_or_else(AttemptEnd::interrupted),
        None => working.await,
    }
}

impl Outturn {
    /// What came of an attempt that ended so, after this time, and has said this.
    pub(super) fn of(ended: AttemptEnd, registration: &Registration, job: &ClaimedJob, ran: Duration, notes: Notes) -> Self {
        let Notes { progress, checkpoint, changed, said, steps, received, .. } = notes;
        // Also of an attempt that was interrupted after its commit.
        let (kept, mut outcome) = (ended.is_written() || said.is_some(), ended.outcome());
        let mut ending = ended.ending(Some(registration), job, ran, DICE);
        if let Some(committed) = said.filter(|_| kept) {
            // What the transaction said is what a worker has committed; whatever the handler did afterwards is only logged.
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
            anew: None,
        };
        Self { attempt, ending, failure: None, reported: changed, kept, ran, received }
    }
}

/// A pool that has no connection, and never waits for one.
pub(super) async fn no_pool() -> PgPool {
    let pool = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new_without_pgpass());
    pool.close().await;
    pool
}

/// Keeps what attempts report, as the worker's loop writes it.
pub(super) async fn keep(reports: &mut mpsc::UnboundedReceiver<Arc<Report>>, note: impl Fn(&ReportEntry)) -> std::convert::Infallible {
    while let Some(report) = reports.recv().await {
        if let Some(entry) = report.take() {
            note(&entry);
            report.complete_write(entry, &WriteResult::Yes);
        }
    }
    std::future::pending().await
}

/// Whether an error is that of [`no_pool`].
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
