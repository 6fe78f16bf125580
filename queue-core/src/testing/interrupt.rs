//! A handler that is interrupted at each of its awaits in turn, and run again to its end.

use std::{sync::Arc, thread, time::Duration};

use sqlx::PgPool;
use tokio::sync::Mutex;

use super::{
    Error,
    attempt::{Outturn, Setup},
    backend::SAVE,
    points::Points,
    run::{Ran, Run},
};
use crate::{
    attempt::ClaimedJob,
    context::{Handler, JournaledStep, Lent, Registration},
    define::{JobId, Verdict},
    schema::Store,
};

/// A handler with more awaits is not tested to its end within a test's time.
const MOST: usize = 2000;

/// So often a place is tried again that the handler did not come to.
const MISSED: usize = 3;

/// A job that had more attempts does not end.
const MOST_ATTEMPTS: usize = 1000;

/// Runs a handler once undisturbed, and then again and again, each time dropped at another of its awaits, as when its process ends there, and run
/// anew until the job is over; `check` looks at what came of each. What it asserts shows whether the handler may be repeated, as workers do after a
/// crash. Plain jobs, durable ones and transactional ones.
///
/// `begin` makes a world of its own for each: it empties what the handler writes to, and gives the job with all that its handler needs, as for
/// [`run`](super::run). The end of each attempt is such a place too: the handler has returned, and nobody has written its verdict.
///
/// What is kept from one attempt to the next is what a store keeps: checkpoints, and the steps of a durable job. A step that was on its way to the
/// journal is not kept. Waits before retries, and sleeps of durable jobs, are over at once. With [`Run::pool`], `cx.begin()`, `cx.transaction()`
/// and `cx.step_tx(..)` have transactions on that pool: those that are committed stay committed, unlike in a drain.
///
/// An await that is ready at once is no such place. What a handler spawned goes on when it is dropped, which no process does that ends; and
/// destructors run.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
/// use queue_core::{Context, Durable, Handler, JobResult, job, testing};
/// use serde::{Deserialize, Serialize};
///
/// /// Charges once for each idempotency key.
/// #[derive(Clone, Default)]
/// struct Bank(Arc<std::sync::Mutex<std::collections::HashSet<String>>>);
///
/// #[job(durable, state(Bank))]
/// #[derive(Serialize, Deserialize)]
/// struct Charge;
///
/// impl Handler for Charge {
///     async fn run(self, cx: &Durable) -> JobResult {
///         let (bank, key) = (cx.state::<Bank>().clone(), cx.key("charge"));
///         cx.step("charge", async { Ok::<_, std::io::Error>(bank.0.lock().unwrap().insert(key)) }).await?;
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), testing::Error> {
/// let bank = Bank::default();
/// let tried = testing::interrupt_everywhere(
///     async || {
///         bank.0.lock().unwrap().clear();
///         testing::run(Charge).state(bank.clone())
///     },
///     async |ran| {
///         assert!(ran.is_completed(), "{:?}", ran.error);
///         assert_eq!(bank.0.lock().unwrap().len(), 1);
///     },
/// )
/// .await?;
/// assert!(tried.interruptions > 1);
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::NeedsPool`] for a transactional type without a pool, [`Error::Restless`] for a handler with more than 2,000 awaits, [`Error::Endless`]
/// for a job that is not over after 1,000 attempts, the database's.
///
/// # Panics
/// As `check` does, after a line on stderr that says where the handler was interrupted; and as [`Run::run`].
pub async fn interrupt_everywhere<T: Handler>(
    mut begin: impl AsyncFnMut() -> Run<T>,
    mut check: impl AsyncFnMut(Ran<T>),
) -> Result<Interrupted, Error> {
    let (mut most, mut interruptions, mut at, mut missed) = (0, 0, 0, 0);
    while at <= most {
        let points = Arc::new(Points::new(at));
        let ran = to_its_end(begin().await, &points).await?;
        most = most.max(points.seen());
        if most > MOST {
            return Err(Error::Restless { most: MOST });
        }
        interruptions += usize::from(points.has_cut());
        if at == 0 || points.has_cut() {
            let _shown = Shown { at, attempts: ran.number };
            check(ran).await;
        } else if missed < MISSED {
            // What it waits for was ready this time, so it had fewer awaits.
            missed += 1;
            continue;
        }
        (at, missed) = (at + 1, 0);
    }
    Ok(Interrupted { interruptions })
}

/// What [`interrupt_everywhere`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interrupted {
    /// How often the handler was interrupted, each time at another place.
    pub interruptions: usize,
}

/// Says what a check that panics was looking at.
struct Shown {
    at: usize,
    attempts: u32,
}

impl Drop for Shown {
    fn drop(&mut self) {
        let Self { at, attempts } = self;
        if thread::panicking() {
            let interrupted = if *at == 0 { "never".to_owned() } else { format!("at await {at}") };
            eprintln!("the check of `interrupt_everywhere` failed: interrupted {interrupted}, the job was over after attempt {attempts}");
        }
    }
}

/// Attempt after attempt, until the job is over.
async fn to_its_end<T: Handler>(run: Run<T>, points: &Arc<Points>) -> Result<Ran<T>, Error> {
    let registration = Registration::of::<T>();
    let (mut job, pool) = run.claimed(&registration).await;
    let Run { states, mut checkpoint, mut steps, middleware, mut asked, pool: own, .. } = run;
    for _ in 0..MOST_ATTEMPTS {
        let lent = if registration.options().transactional { Some(transaction(&job, own.as_ref()).await?) } else { None };
        let setup = Setup {
            registration: &registration,
            job: &job,
            checkpoint,
            steps,
            states: states.clone(),
            middleware: middleware.clone(),
            pool: pool.clone(),
            store: Store::default(),
            lent: lent.clone(),
            asked: asked.take(),
            points: Some(Arc::clone(points)),
        };
        let had_cut = points.has_cut();
        let outturn = setup.run().await;
        let was_cut = points.has_cut() && !had_cut;
        // What a handler has committed with its verdict is no verdict to be lost.
        let is_lost = was_cut || (!outturn.kept && points.pass());
        end(job.id, lent, !is_lost && outturn.attempt.is_completed()).await?;
        let Some(next) = Next::after(&outturn, is_lost) else { return Ok(Ran::of(outturn, own.is_none())) };
        (job.attempt, job.crashes) = (job.attempt.saturating_add(next.charged), job.crashes.saturating_add(next.crashed));
        checkpoint = outturn.attempt.checkpoint;
        steps = outturn.attempt.steps.into_iter().map(|step| later(step, next.wait)).collect();
    }
    Err(Error::Endless { most: MOST_ATTEMPTS })
}

/// What an attempt leaves to the next.
struct Next {
    charged: i16,
    crashed: i16,
    wait: Duration,
}

impl Next {
    /// Nothing if the job is over.
    fn after(outturn: &Outturn, is_lost: bool) -> Option<Self> {
        let (charged, crashed, wait) = match outturn.attempt.verdict {
            _ if is_lost => (1, 1, Duration::ZERO),
            Verdict::Retry(wait) => (1, 0, wait),
            Verdict::Snooze(wait) => (0, 0, wait),
            Verdict::Release => (0, 0, Duration::ZERO),
            Verdict::Complete | Verdict::Dead | Verdict::Cancel | Verdict::Expire => return None,
        };
        Some(Self { charged, crashed, wait })
    }
}

/// The step as it is after so long.
fn later(mut step: JournaledStep, wait: Duration) -> JournaledStep {
    step.left_ms = step.left_ms.map(|left| left - wait.as_secs_f64() * 1000.0);
    step
}

/// What a transactional type's handler is lent.
async fn transaction(job: &ClaimedJob, pool: Option<&PgPool>) -> Result<Lent, Error> {
    let pool = pool.ok_or_else(|| Error::NeedsPool { job_type: job.job_type.to_owned() })?;
    let mut tx = pool.begin().await?;
    sqlx::raw_sql(SAVE).execute(&mut *tx).await?;
    Ok(Arc::new(Mutex::new(tx)))
}

/// Commits what a transactional handler has written, or takes it back.
async fn end(job: JobId, lent: Option<Lent>, commits: bool) -> Result<(), Error> {
    let Some(lent) = lent else { return Ok(()) };
    let tx = Arc::try_unwrap(lent).map_err(|_| Error::Kept { job })?.into_inner();
    if commits { tx.commit().await } else { tx.rollback().await }.map_err(Error::from)
}
