//! A handler that is interrupted at each of its awaits in turn, and run again to its end.

use std::{sync::Arc, thread, time::Duration};

use sqlx::PgPool;

use super::{
    Error,
    attempt::{Outturn, Setup},
    points::{MOST, Place, Points, shown},
    run::{Ran, Run},
};
use crate::{
    context::{CancelReason, Handler, JournaledStep, Registration},
    define::Verdict,
    schema::Store,
};

/// So often a place is tried again that the handler did not come to.
const TRIES: usize = 3;

/// A job that had more attempts does not end.
const MOST_ATTEMPTS: usize = 1000;

/// Runs a handler once undisturbed, and then again and again, each time dropped at another place, as when its process ends there, and run anew until
/// the job is over; `check` looks at what came of each. What it asserts shows whether the handler may be repeated, as workers do after a crash. Plain
/// jobs, durable ones and transactional ones.
///
/// `begin` makes a world of its own for each: it empties what the handler writes to, and gives the job with all that its handler needs, as for
/// [`run`](super::run). [`Ran::interrupted_at`] says where the job was interrupted.
///
/// A [`Place`] is where the handler waits; one of its awaits may be several, and one that is ready at once is none. Where something is written for
/// the job, a checkpoint, a step, a commit, there are two: before, and after, when the handler does not know of it yet. And the end of each attempt:
/// the handler has returned, and nobody has written its verdict.
///
/// What is kept from one attempt to the next is what a store keeps: checkpoints, the steps of a durable job and what it received, and what
/// `cx.begin()` or `cx.step_tx(..)` has committed; with [`Run::pool`] they have transactions on that pool, and so has `cx.transaction()`, and those
/// that are committed stay committed, unlike in a drain. Waits between attempts are over at once: those of retries, durable sleeps, and timed waits
/// for signals. A job that is parked without an end is given to `check` as it is, neither completed nor dead.
///
/// Unlike when a process ends, destructors run, and what a handler spawned goes on.
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
/// [`Error::NeedsPool`] for a transactional type without a pool, [`Error::Restless`] for a handler that waits more than 2,000 times,
/// [`Error::Unending`] for a job that is not over after 1,000 attempts, [`Error::Kept`], the database's.
///
/// # Panics
/// As `check` does, with a line on stderr that says where the job was interrupted; and as [`Run::run`].
pub async fn interrupt_everywhere<T: Handler>(
    mut begin: impl AsyncFnMut() -> Run<T>,
    mut check: impl AsyncFnMut(Ran<T>),
) -> Result<Interrupted, Error> {
    let mut done = Interrupted { interruptions: 0, missed: 0 };
    let whole = once(None, &mut begin, &mut check).await?;
    for first in Place::KINDS {
        // Runs that are not interrupted where they were to be may have other places.
        let (mut place, mut last, mut tries) = (first, whole.seen_of(first), 0);
        while place.number() <= last {
            let points = once(Some(place), &mut begin, &mut check).await?;
            if points.has_cut() {
                done.interruptions += 1;
            } else if tries < TRIES {
                // What it waits for was ready this time, so it had fewer places.
                (tries, last) = (tries + 1, last.max(points.seen_of(first)));
                continue;
            } else {
                done.missed += 1;
            }
            (place, tries) = (place.next(), 0);
        }
    }
    Ok(done)
}

/// Runs the job to its end, interrupted at this place, and has it looked at if it came there.
async fn once<T: Handler>(
    at: Option<Place>,
    begin: &mut impl AsyncFnMut() -> Run<T>,
    check: &mut impl AsyncFnMut(Ran<T>),
) -> Result<Arc<Points>, Error> {
    let (points, run) = (Arc::new(Points::new(at)), begin().await);
    let shown = Shown { at };
    let ran = to_its_end(run, &points).await?;
    if at.is_none() || points.has_cut() {
        check(ran).await;
    }
    drop(shown);
    Ok(points)
}

/// What [`interrupt_everywhere`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interrupted {
    /// How often the job was interrupted, each time at another place.
    pub interruptions: usize,
    /// Places that it came to once, and not when it was to be interrupted there.
    pub missed: usize,
}

/// Says what was being done when something panics.
struct Shown {
    at: Option<Place>,
}

impl Drop for Shown {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("`interrupt_everywhere` had interrupted the job {}", shown(self.at));
        }
    }
}

/// Attempt after attempt, until the job is over.
async fn to_its_end<T: Handler>(run: Run<T>, points: &Arc<Points>) -> Result<Ran<T>, Error> {
    let registration = Registration::of::<T>();
    let (mut job, pool) = run.claimed(&registration).await;
    if registration.options().transactional && run.pool.is_none() {
        return Err(Error::NeedsPool { job_type: job.job_type.to_owned() });
    }
    let Run { states, mut checkpoint, mut steps, mut signals, children, middleware, mut asked, pool: own, .. } = run;
    for _ in 0..MOST_ATTEMPTS {
        let (is_cancelled, in_use) = (asked == Some(CancelReason::Cancelled), own.as_ref().map(used));
        let setup = Setup {
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
            asked: asked.take(),
            points: Some(Arc::clone(points)),
        };
        let had_cut = points.has_cut();
        let mut outturn = setup.run().await;
        if points.are_too_many() {
            return Err(Error::Restless { at: points.at(), most: MOST });
        }
        let was_cut = points.has_cut() && !had_cut;
        // A verdict that the handler has committed is none to be lost.
        let is_lost = !outturn.kept && (was_cut || points.has_returned());
        if let (true, Some(own), Some(in_use)) = (was_cut, &own, in_use) {
            rest(own, in_use).await;
        }
        let next = Next::after(&mut outturn, is_lost, is_cancelled);
        let Some(next) = next else {
            let ran = Ran::of(outturn, own.is_none());
            return Ok(if points.has_cut() { ran.interrupted(points.at()) } else { ran });
        };
        if let Some(payload) = next.anew {
            (job.attempt, job.crashes, job.payload) = (1, 0, Some(payload));
            signals.retain(|sent| !outturn.received.contains(&sent.seq));
            (checkpoint, steps) = (None, Vec::new());
            continue;
        }
        (job.attempt, job.crashes) = (job.attempt.saturating_add(next.charged), job.crashes.saturating_add(next.charged_crash));
        checkpoint = outturn.attempt.checkpoint;
        signals.retain(|sent| !outturn.received.contains(&sent.seq));
        steps = outturn.attempt.steps.into_iter().map(|step| later(step, next.wait + outturn.ran)).collect();
    }
    Err(Error::Unending { at: points.at(), attempts: MOST_ATTEMPTS })
}

/// What an attempt leaves to the next.
struct Next {
    charged: i16,
    charged_crash: i16,
    wait: Duration,
    /// The payload with which it begins anew.
    anew: Option<String>,
}

impl Next {
    /// Nothing if the job is over, or waits for what nobody sends.
    fn after(outturn: &mut Outturn, is_lost: bool, is_cancelled: bool) -> Option<Self> {
        if is_lost && is_cancelled {
            // Whoever recovers it finds that it was to be cancelled.
            outturn.attempt.verdict = Verdict::Cancel;
            return None;
        }
        let (charged, charged_crash, wait) = match outturn.attempt.verdict {
            _ if is_lost => (1, 1, Duration::ZERO),
            Verdict::Retry(wait) => (1, 0, wait),
            Verdict::Snooze(wait) | Verdict::Park(Some(wait)) => (0, 0, wait),
            Verdict::Release | Verdict::Restart => (0, 0, Duration::ZERO),
            // Nobody will send what it waits for.
            Verdict::Complete | Verdict::Dead | Verdict::Cancel | Verdict::Expire | Verdict::Park(None) => return None,
        };
        let anew = outturn.ending.anew().filter(|_| !is_lost).map(|anew| anew.payload.clone());
        Some(Self { charged, charged_crash, wait, anew })
    }
}

/// The step as it is after so long.
fn later(mut step: JournaledStep, wait: Duration) -> JournaledStep {
    step.left_ms = step.left_ms.map(|left| left - wait.as_secs_f64() * 1000.0);
    step
}

/// So many connections of the pool are in use.
fn used(pool: &PgPool) -> usize {
    (pool.size() as usize).saturating_sub(pool.num_idle())
}

/// Waits a moment for connections on which a statement that was interrupted is still under way: a worker's job does not come back so soon.
async fn rest(pool: &PgPool, before: usize) {
    for _ in 0..100 {
        if used(pool) <= before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
