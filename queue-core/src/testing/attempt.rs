//! One attempt in a test: the handler, its timeout, its panics, and the verdict that a worker would write. Touches no database.

use std::{
    any::Any,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use serde::de::DeserializeOwned;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{runtime::Handle, sync::mpsc};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::rig::{Notes, Rig};
use crate::{
    begin::{Fence, NOT_COMPLETED, Ruling, Said, Stage},
    context::{Context, Lent, Shared, States},
    error::Error,
    job::{Failure, Job},
    options::Retain,
    progress::Progress,
    record::JobId,
    registry::Registration,
    report::{Desk, Report, Written},
    retry::{Outcome, Verdict, verdict},
    store::Store,
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
        match self.verdict {
            Verdict::Retry(wait) => Some(wait),
            _ => None,
        }
    }

    /// The wait that the handler asked for, if it was a snooze.
    pub fn snoozed_for(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Snooze(wait) => Some(wait),
            _ => None,
        }
    }

    /// What a job of type `T` returned, read back as it is stored; `None` if it is of another type, or not completed.
    ///
    /// # Panics
    /// When the output cannot be read back as `T::Output`: nobody who waits for it could.
    pub fn output_of<T: Job>(&self) -> Option<T::Output> {
        let is_of = self.job_type == T::OPTIONS.name || T::OPTIONS.aliases.contains(&self.job_type.as_str());
        (is_of && self.is_completed()).then(|| {
            serde_json::from_str(self.output.as_deref().unwrap_or("null"))
                .unwrap_or_else(|error| panic!("the output of `{}` cannot be read back: {error}", T::OPTIONS.name))
        })
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
    pub(super) job_type: &'a str,
    pub(super) payload: &'a str,
    pub(super) id: JobId,
    pub(super) lane: i64,
    pub(super) number: u32,
    pub(super) max_attempts: u32,
    pub(super) checkpoint: Option<String>,
    pub(super) states: States,
    pub(super) pool: PgPool,
    pub(super) store: Store,
    pub(super) lent: Option<Lent>,
    /// The worker is shutting down.
    pub(super) asked: bool,
}

/// What came of it, and what only the caller of one attempt sees.
pub(super) struct Outturn {
    pub(super) attempt: Attempt,
    pub(super) failure: Option<Failure>,
    /// Something was reported.
    pub(super) reported: bool,
    /// The handler's own transaction is kept.
    pub(super) kept: bool,
    pub(super) ran: Duration,
}

impl Setup<'_> {
    pub(super) async fn run(self) -> Outturn {
        let Self { registration, id, number, max_attempts, .. } = self;
        let options = *registration.options();
        let rig = Arc::new(Rig::new(number, self.checkpoint.clone(), self.lent.clone()));
        let (desk, mut reports) = Desk::open();
        let shared = Shared {
            pool: self.pool.clone(),
            states: self.states.clone(),
            store: self.store,
            handlers: Handle::current(),
            // A context in a test never commits on the pool; see `Rig::keep`.
            commit: |_, _, _| Box::pin(std::future::ready(Ruling::Lost)),
            desk: desk.on(Arc::clone(&rig)),
        };
        let halt = CancellationToken::new();
        if self.asked {
            halt.cancel();
        }
        let cx = Context::new(id, number, max_attempts, halt.clone(), Arc::new(shared));
        let cx = if options.transactional { cx.within(self.lent.clone()) } else { cx.under(self.fence()) };
        let since = Instant::now();
        let ended = {
            let working = pin!(async {
                let ended = AssertUnwindSafe(limited(registration, self.payload, &cx)).catch_unwind().await.unwrap_or_else(Ended::panicked);
                if let Some(report) = cx.report() {
                    report.end(LAST_REPORT).await;
                }
                ended
            });
            let keeping = pin!(keep(&mut reports, &rig));
            tokio::select! {
                biased;
                ended = working => ended,
                never = keeping => match never {},
            }
        };
        let stage = match cx.begun() {
            Some(begun) => Some(begun.close(Duration::ZERO).await),
            None => None,
        };
        let notes = rig.take();
        let ended = ended.after(stage, &notes, halt.is_cancelled());
        let verdict = verdict(ended.outcome, number, max_attempts, &options.backoff, 0.5);
        let Notes { progress, checkpoint, changed, .. } = notes;
        let attempt = Attempt {
            id,
            job_type: self.job_type.to_owned(),
            number,
            outcome: ended.outcome,
            verdict,
            error: ended.error,
            progress,
            output: ended.output,
            checkpoint,
        };
        Outturn { attempt, failure: ended.failure, reported: changed, kept: stage == Some(Stage::Written), ran: since.elapsed() }
    }

    /// Nothing is written under it: its transaction is the test's, and its reports stay here.
    fn fence(&self) -> Fence {
        Fence {
            token: Uuid::nil(),
            id: self.id,
            lane: self.lane,
            attempt: i16::try_from(self.number).unwrap_or(i16::MAX),
            crashes: 0,
            keep: self.registration.options().retain != Retain::None,
            key: None,
            since: Instant::now(),
        }
    }
}

/// How long an attempt whose handler has ended waits until its last report is kept.
const LAST_REPORT: Duration = Duration::from_secs(1);

/// A pool that has no connection, and never waits for one.
pub(super) async fn no_pool() -> PgPool {
    let pool = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new_without_pgpass());
    pool.close().await;
    pool
}

/// Keeps what the attempt reports, as the worker's loop writes it.
async fn keep(reports: &mut mpsc::UnboundedReceiver<Arc<Report>>, rig: &Rig) -> std::convert::Infallible {
    while let Some(report) = reports.recv().await {
        if let Some(entry) = report.take() {
            rig.note(&entry);
            report.answer(entry, &Written::Yes);
        }
    }
    std::future::pending().await
}

/// How a handler ended.
struct Ended {
    outcome: Outcome,
    output: Option<String>,
    error: Option<String>,
    failure: Option<Failure>,
}

async fn limited(registration: &Registration, payload: &str, cx: &Context) -> Ended {
    let running = registration.run(payload, cx);
    let result = match registration.options().timeout {
        Some(limit) => match tokio::time::timeout(limit, running).await {
            Ok(result) => result,
            Err(_) => return Ended::new(Outcome::TimedOut, format!("timed out after {limit:?}")),
        },
        None => running.await,
    };
    match result {
        Ok(output) => Ended { outcome: Outcome::Ok, output, error: None, failure: None },
        Err(failure) => {
            let error = failure.error().is_some().then(|| failure.to_string());
            Ended { outcome: failure.kind().outcome(), output: None, error, failure: Some(failure) }
        }
    }
}

impl Ended {
    fn new(outcome: Outcome, error: impl Into<String>) -> Self {
        Self { outcome, output: None, error: Some(error.into()), failure: None }
    }

    fn panicked(panic: Box<dyn Any + Send>) -> Self {
        let text = match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast_ref::<&str>().map_or_else(|| "with a value that is no text".to_owned(), |text| (*text).to_owned()),
        };
        Self::new(Outcome::Panicked, format!("panicked: {text}"))
    }

    /// As the worker's `dispatch` has it: only what a transaction of the handler's own said counts, and one that asked to end has not failed.
    fn after(self, stage: Option<Stage>, notes: &Notes, asked: bool) -> Self {
        match (stage, &notes.said) {
            (Some(Stage::Written), Some(Said { error: Some(error), .. })) => Self::new(Outcome::Terminal, error.clone()),
            (Some(Stage::Written), Some(Said { output, .. })) => {
                Self { outcome: Outcome::Ok, output: output.clone(), error: None, failure: None }
            }
            (Some(_), _) if self.outcome == Outcome::Ok => Self::new(Outcome::Failed, NOT_COMPLETED),
            _ if asked && self.failure.is_some() => Self { outcome: Outcome::Interrupted, ..self },
            _ => self,
        }
    }
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
