//! Interrupts a handler at each [`Place`] in turn, and runs the handler again until the job has finished.

use std::{sync::Arc, thread, time::Duration};

use sqlx::PgPool;

use super::{
    Error,
    attempt::{AttemptRun, AttemptSetup},
    points::{InterruptPoints, MAX_PLACES, Place, shown},
    run::{Run, RunResult},
};
use crate::{
    context::{CancelReason, JournaledStep},
    define::{JobType, Verdict},
    schema::Store,
};

/// Maximum number of additional runs for a place that a run did not reach.
const MAX_TRIES: usize = 3;

/// Maximum number of attempts in one run. A job that needs more attempts is assumed never to finish.
const MOST_ATTEMPTS: usize = 1000;

/// Runs a handler once without interruption, and then once for each place where the handler can be interrupted.
///
/// In each interrupted run, the handler's future is dropped at a different place, as if the process had crashed at that point. The job
/// then runs again until it has finished, and `check` inspects the result. The assertions in `check` show whether it is safe to run the
/// handler again, as a worker does after a crash. Plain, durable and transactional jobs are supported.
///
/// `begin` prepares each run, and isolates it from earlier runs. `begin` resets all data that the handler writes, and returns the job
/// with all state for its handler, as for [`run`](super::run). [`RunResult::interrupted_at`] returns the place of the interruption.
///
/// A [`Place`] is a point at which the handler is pending. One `.await` may have several places, and an `.await` that is ready
/// immediately has none. A write for the job, such as a checkpoint, a step or a commit, adds two places. One place is before the write,
/// and the other is after the write but before the handler receives its result. The end of each attempt also adds a place, after the
/// handler has returned and before the verdict is recorded.
///
/// Between attempts, the test keeps the same data as a store: checkpoints, journaled steps, received signals, and commits of `cx.begin()`
/// and `cx.step_tx(..)`. With [`Run::pool`], both functions and `cx.transaction()` use transactions on that pool. Unlike in a drain,
/// committed transactions stay committed. Retry delays, durable sleeps and waits for signals with a timeout end immediately. A job that
/// is parked without a timeout is passed to `check` although it is neither completed nor dead.
///
/// Unlike in a process crash, destructors run, and tasks spawned by the handler continue.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
/// use queue_core::{Context, Handler, JobResult, durable::Durable, job, testing};
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
/// Returns [`Error::NeedsPool`] for a transactional type without a pool. Returns [`Error::Restless`] for a handler with more than 2,000
/// places before or after the interruption, and [`Error::Unending`] for a job that has not finished after 1,000 attempts.
///
/// # Panics
/// Panics if `check` panics, or for the same reasons as [`Run::run`]. A line on stderr then reports where the job was interrupted.
pub async fn interrupt_everywhere<T: JobType>(
    mut begin: impl AsyncFnMut() -> Run<T>,
    mut check: impl AsyncFnMut(RunResult<T>),
) -> Result<InterruptionReport, Error> {
    let mut done = InterruptionReport { interruptions: 0, missed: 0 };
    let whole = run_once(None, &mut begin, &mut check).await?;
    for first in Place::KINDS {
        // `last` increases if a run ends before reaching `place`, but reaches more places than the first run did.
        let (mut place, mut last, mut tries) = (first, whole.seen_of_kind(first), 0);
        while place.number() <= last {
            let points = run_once(Some(place), &mut begin, &mut check).await?;
            if points.was_interrupted() {
                done.interruptions += 1;
            } else if tries < MAX_TRIES {
                // An await was ready immediately in this run, so the run ended before reaching the place.
                (tries, last) = (tries + 1, last.max(points.seen_of_kind(first)));
                continue;
            } else {
                done.missed += 1;
            }
            (place, tries) = (place.next(), 0);
        }
    }
    Ok(done)
}

/// Runs the job until it has finished, and interrupts it at the place `at`. Calls `check` if the job was interrupted there, or if `at` is
/// `None`.
async fn run_once<T: JobType>(
    at: Option<Place>,
    begin: &mut impl AsyncFnMut() -> Run<T>,
    check: &mut impl AsyncFnMut(RunResult<T>),
) -> Result<Arc<InterruptPoints>, Error> {
    let (points, run) = (Arc::new(InterruptPoints::new(at)), begin().await);
    let shown = PanicReport { at };
    let ran = run_to_end(run, &points).await?;
    if at.is_none() || points.was_interrupted() {
        check(ran).await;
    }
    drop(shown);
    Ok(points)
}

/// Result of [`interrupt_everywhere`], with the numbers of interruptions and missed places.
///
/// ```
/// # use queue_core::{Context, Handler, JobResult, job, testing};
/// # #[job] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # impl Handler for Email { async fn run(self, _: &Context) -> JobResult { Ok(()) } }
/// # async fn example() -> Result<(), testing::Error> {
/// let report = testing::interrupt_everywhere(
///     async || testing::run(Email { to: "ada@example.org".into() }),
///     async |ran| {
///         assert!(ran.is_completed());
///     },
/// )
/// .await?;
/// assert_eq!(report.missed, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterruptionReport {
    /// Number of interruptions, each at a different place.
    pub interruptions: usize,
    /// Number of places that an earlier run reached, but that repeated runs did not reach again.
    pub missed: usize,
}

/// Guard that prints the place of the interruption if it is dropped during a panic.
struct PanicReport {
    at: Option<Place>,
}

impl Drop for PanicReport {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("`interrupt_everywhere` had interrupted the job {}", shown(self.at));
        }
    }
}

/// Runs attempts until the job has finished.
async fn run_to_end<T: JobType>(run: Run<T>, points: &Arc<InterruptPoints>) -> Result<RunResult<T>, Error> {
    let (mut job, pool) = run.claimed().await;
    if run.registration.options().transactional && run.pool.is_none() {
        return Err(Error::NeedsPool { job_type: job.job_type.to_owned() });
    }
    let Run { registration, states, mut checkpoint, mut steps, mut signals, children, middleware, mut cancel_reason, pool: own, .. } = run;
    for _ in 0..MOST_ATTEMPTS {
        let (is_cancelled, in_use) = (cancel_reason == Some(CancelReason::Cancelled), own.as_ref().map(connections_in_use));
        let setup = AttemptSetup {
            registration: &registration,
            job: &job,
            checkpoint,
            steps,
            signals: signals.clone(),
            children: Some(children.clone()),
            states: states.clone(),
            middleware: middleware.clone(),
            pool: pool.clone(),
            store: Store::default(),
            lent: None,
            cancel_reason: cancel_reason.take(),
            points: Some(Arc::clone(points)),
        };
        let had_cut = points.was_interrupted();
        let mut outturn = setup.run().await;
        if points.exceeds_limit() {
            return Err(Error::Restless { at: points.at(), most: MAX_PLACES });
        }
        let was_cut = points.was_interrupted() && !had_cut;
        // A verdict that the handler has committed cannot be lost.
        let is_lost = !outturn.kept && (was_cut || points.has_returned());
        if let (true, Some(own), Some(in_use)) = (was_cut, &own, in_use) {
            wait_until_idle(own, in_use).await;
        }
        let next = NextAttempt::after(&mut outturn, is_lost, is_cancelled);
        let Some(next) = next else {
            let ran = RunResult::of(outturn, own.is_none());
            return Ok(if points.was_interrupted() { ran.interrupted(points.at()) } else { ran });
        };
        if let Some(payload) = next.restart_payload {
            (job.attempt, job.crashes, job.payload) = (1, 0, Some(payload));
            signals.retain(|sent| !outturn.received.contains(&sent.seq));
            (checkpoint, steps) = (None, Vec::new());
            continue;
        }
        (job.attempt, job.crashes) = (job.attempt.saturating_add(next.charged), job.crashes.saturating_add(next.charged_crash));
        checkpoint = outturn.attempt.checkpoint;
        signals.retain(|sent| !outturn.received.contains(&sent.seq));
        steps = outturn.attempt.steps.into_iter().map(|step| after_wait(step, next.wait + outturn.ran)).collect();
    }
    Err(Error::Unending { at: points.at(), attempts: MOST_ATTEMPTS })
}

/// State that is passed from one attempt to the next.
struct NextAttempt {
    charged: i16,
    charged_crash: i16,
    wait: Duration,
    /// Payload with which the job restarts, if any.
    restart_payload: Option<String>,
}

impl NextAttempt {
    /// Returns the state for the next attempt, or `None` if the job has finished or is parked without a timeout.
    fn after(outturn: &mut AttemptRun, is_lost: bool, is_cancelled: bool) -> Option<Self> {
        if is_lost && is_cancelled {
            // In a worker, recovery would find the pending cancellation and cancel the job.
            outturn.attempt.verdict = Verdict::Cancel;
            return None;
        }
        let (charged, charged_crash, wait) = match outturn.attempt.verdict {
            _ if is_lost => (1, 1, Duration::ZERO),
            Verdict::Retry(wait) => (1, 0, wait),
            Verdict::Snooze(wait) | Verdict::Park(Some(wait)) => (0, 0, wait),
            Verdict::Release | Verdict::Restart => (0, 0, Duration::ZERO),
            // All signals are sent before the first attempt, so a job that is parked without a timeout would wait forever.
            Verdict::Complete | Verdict::Dead | Verdict::Cancel | Verdict::Expire | Verdict::Park(None) => return None,
        };
        let restart_payload = outturn.ending.restart().filter(|_| !is_lost).map(|restart| restart.payload.clone());
        Some(Self { charged, charged_crash, wait, restart_payload })
    }
}

/// Reduces the remaining wait of a step by `wait`.
fn after_wait(mut step: JournaledStep, wait: Duration) -> JournaledStep {
    step.left_ms = step.left_ms.map(|left| left - wait.as_secs_f64() * 1000.0);
    step
}

/// Returns the number of the pool's connections that are in use.
fn connections_in_use(pool: &PgPool) -> usize {
    (pool.size() as usize).saturating_sub(pool.num_idle())
}

/// Waits up to one second until interrupted statements on the pool's connections have ended. Without this wait, the next attempt would
/// start sooner than on a worker, while such statements may still be running.
async fn wait_until_idle(pool: &PgPool, before: usize) {
    for _ in 0..100 {
        if connections_in_use(pool) <= before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
