//! Running claimed jobs: a fixed number of slots, each running one handler at a time.
//!
//! Never touches the database: jobs come in from the claim loop, verdicts go out to the settle loop. Only `retry::verdict` decides what an
//! outcome leads to; this file finds out what the outcome is.

use std::{
    any::Any,
    collections::VecDeque,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use queue_core::{Context, FailureKind, Outcome, Registration, Registry, Retain, Verdict, verdict, worker::Shared};
use tokio::sync::{Semaphore, mpsc::Sender};
use tokio_util::sync::CancellationToken;

use crate::{claim::Claimed, settle::Settlement, wake::Bell};

/// What all slots of a worker have in common.
pub(crate) struct Floor {
    pub(crate) registry: Registry,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settle: Sender<Settlement>,
    pub(crate) bell: Arc<Bell>,
}

/// The slots of one subscription.
pub(crate) struct Slots {
    floor: Arc<Floor>,
    queued: Mutex<VecDeque<Claimed>>,
    /// One permit for each queued job.
    jobs: Semaphore,
    running: Vec<Mutex<Option<Running>>>,
    busy: AtomicUsize,
    finished: AtomicUsize,
    pace: Mutex<Pace>,
    halt: Mutex<Halt>,
}

/// A handler at work, with what it takes to write a verdict without it.
struct Running {
    released: Settlement,
    job_type: &'static str,
    since: Instant,
    limit: Option<Duration>,
    reported: bool,
}

/// How handlers are told to end: asked first, then dropped.
#[derive(Clone, Default)]
struct Halt {
    ask: CancellationToken,
    drop: CancellationToken,
}

/// The longest error text that is kept, in bytes.
const LONGEST_ERROR: usize = 8 * 1024;

/// The longest output that is kept, in bytes.
const LONGEST_OUTPUT: usize = 16 * 1024 * 1024;

impl Slots {
    /// `concurrency` slots, at work until the runtime ends.
    pub(crate) fn start(floor: &Arc<Floor>, concurrency: usize) -> Arc<Self> {
        let slots = Arc::new(Self {
            floor: Arc::clone(floor),
            queued: Mutex::default(),
            jobs: Semaphore::new(0),
            running: (0..concurrency).map(|_| Mutex::default()).collect(),
            busy: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            pace: Mutex::new(Pace::new(Instant::now())),
            halt: Mutex::default(),
        });
        for slot in 0..concurrency {
            tokio::spawn(Arc::clone(&slots).work(slot));
        }
        slots
    }

    /// How many jobs to claim now: the free slots, and a tenth of a second's worth in advance. Zero while that is still half full, so that
    /// fast jobs travel in large batches and slow ones are not hoarded.
    pub(crate) fn demand(&self, most: usize) -> usize {
        let ahead = lock(&self.pace).ahead(Instant::now(), self.finished.load(Relaxed)).min(2 * most);
        let (queued, free) = (lock(&self.queued).len(), self.running.len().saturating_sub(self.busy.load(Relaxed)));
        if queued > ahead / 2 || (queued >= free && ahead == 0) { 0 } else { (free + ahead - queued).min(most) }
    }

    /// Hands jobs to the slots, in this order.
    pub(crate) fn push(&self, jobs: Vec<Claimed>) {
        let count = jobs.len();
        lock(&self.queued).extend(jobs);
        self.jobs.add_permits(count);
    }

    /// Whether nothing is queued or running.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.queued).is_empty() && self.busy.load(Relaxed) == 0
    }

    /// Takes back what no slot has begun, to be released.
    pub(crate) fn take_queued(&self) -> Vec<Settlement> {
        let taken: Vec<Claimed> = lock(&self.queued).drain(..).collect();
        taken.into_iter().map(|job| release(&job)).collect()
    }

    /// Tells running handlers that they should end now.
    pub(crate) fn ask(&self) {
        lock(&self.halt).ask.cancel();
    }

    /// Drops running handlers at their next `await`; each is released.
    pub(crate) fn drop_running(&self) {
        lock(&self.halt).drop.cancel();
    }

    /// What runs all the same, because it never awaits: to be released without its slot.
    pub(crate) fn take_running(&self) -> Vec<Settlement> {
        self.running.iter().filter_map(|slot| lock(slot).take()).map(|running| running.released).collect()
    }

    /// Lets every slot end once it has nothing to run.
    pub(crate) fn close(&self) {
        self.jobs.close();
    }

    /// Forgets everything: the lease is lost, and what is queued or running belongs to others.
    pub(crate) fn abandon(&self) {
        lock(&self.queued).clear();
        let halt = std::mem::take(&mut *lock(&self.halt));
        for slot in &self.running {
            lock(slot).take();
        }
        halt.ask.cancel();
        halt.drop.cancel();
    }

    /// Reports, once each, handlers that go on long after their timeout, which means that they never await.
    pub(crate) fn report_stuck(&self) {
        for slot in &self.running {
            if let Some(running) = &mut *lock(slot)
                && let Some(limit) = running.limit
                && running.since.elapsed() > limit + Duration::from_secs(5)
                && !std::mem::replace(&mut running.reported, true)
            {
                let (job, job_type, seconds) = (running.released.id, running.job_type, running.since.elapsed().as_secs());
                tracing::error!(%job, job_type, seconds, "handler is stuck: past its timeout and never awaiting; move blocking work to `spawn_blocking`");
            }
        }
    }

    async fn work(self: Arc<Self>, slot: usize) {
        while let Ok(permit) = self.jobs.acquire().await {
            permit.forget();
            let Some(job) = self.next() else { continue };
            self.run(slot, job).await;
            self.finished.fetch_add(1, Relaxed);
            self.busy.fetch_sub(1, Relaxed);
            if lock(&self.queued).len() <= lock(&self.pace).ahead / 2 {
                self.floor.bell.ring();
            }
        }
    }

    /// The next job; counted as busy before the queue is unlocked, so that it is never seen as neither.
    fn next(&self) -> Option<Claimed> {
        let mut queued = lock(&self.queued);
        let job = queued.pop_front()?;
        self.busy.fetch_add(1, Relaxed);
        Some(job)
    }

    async fn run(&self, slot: usize, job: Claimed) {
        let since = Instant::now();
        let halt = lock(&self.halt).clone();
        let registration = self.floor.registry.get(job.job_type);
        let limit = registration.and_then(|known| known.options().timeout);
        let running = Running { released: release(&job), job_type: job.job_type, since, limit, reported: false };
        *lock(&self.running[slot]) = Some(running);

        let ended = match registration {
            Some(registration) => attempt(registration, &job, &self.floor.shared, &halt).await,
            None => Ended::terminal("no handler for this job type in this worker"),
        };

        // Gone when the job was taken from this slot meanwhile: abandoned, or released by a shutdown that could wait no longer.
        let still_ours = lock(&self.running[slot]).take().is_some();
        if still_ours {
            let settlement = judge(registration, &job, ended, since.elapsed());
            // Fails only when the worker has ended, and then the job was released.
            let _ = self.floor.settle.send(settlement).await;
        }
    }
}

/// How an attempt ended.
struct Ended {
    outcome: Outcome,
    output: Option<String>,
    error: Option<String>,
}

impl Ended {
    fn new(outcome: Outcome, error: impl Into<String>) -> Self {
        Self { outcome, output: None, error: Some(error.into()) }
    }

    fn terminal(error: impl Into<String>) -> Self {
        Self::new(Outcome::Terminal, error)
    }
}

/// Runs the handler to its end, its timeout or its halt.
async fn attempt(registration: &Registration, job: &Claimed, shared: &Arc<Shared>, halt: &Halt) -> Ended {
    let Some(payload) = &job.payload else { return Ended::terminal("the job's payload is missing from the store") };
    let cancelled = halt.ask.child_token();
    let cx = Context::new(job.id, job.attempt.unsigned_abs().into(), job.max_attempts.unsigned_abs().into(), cancelled, Arc::clone(shared));
    let running = AssertUnwindSafe(registration.run(payload, &cx)).catch_unwind();
    let limited = async {
        match registration.options().timeout {
            Some(limit) => tokio::time::timeout(limit, running).await.map_err(|_| limit),
            None => Ok(running.await),
        }
    };
    let result = tokio::select! {
        biased;
        result = limited => result,
        () = halt.drop.cancelled() => return Ended { outcome: Outcome::Interrupted, output: None, error: None },
    };
    match result {
        Ok(Ok(Ok(output))) if output.as_ref().is_some_and(|text| text.len() > LONGEST_OUTPUT) => {
            Ended::terminal(format!("the output is longer than {LONGEST_OUTPUT} bytes; store a reference instead"))
        }
        Ok(Ok(Ok(output))) => Ended { outcome: Outcome::Ok, output, error: None },
        // A handler that ends early because it was asked to has not failed.
        Ok(Ok(Err(_))) if halt.ask.is_cancelled() => Ended { outcome: Outcome::Interrupted, output: None, error: None },
        Ok(Ok(Err(failure))) => Ended::new(outcome_of(failure.kind()), failure.to_string()),
        Ok(Err(panic)) => Ended::new(Outcome::Panicked, format!("panicked: {}", panic_text(panic))),
        Err(limit) => Ended::new(Outcome::TimedOut, format!("timed out after {limit:?}")),
    }
}

fn outcome_of(kind: FailureKind) -> Outcome {
    match kind {
        FailureKind::RetryIn(wait) => Outcome::RetryIn(wait),
        FailureKind::Terminal => Outcome::Terminal,
        FailureKind::Snooze(wait) => Outcome::Snoozed(wait),
        _ => Outcome::Failed,
    }
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = match panic.downcast::<String>() {
        Ok(text) => return *text,
        Err(panic) => panic.downcast_ref::<&str>().map(|text| (*text).to_owned()),
    };
    text.unwrap_or_else(|| "with a value that is no text".to_owned())
}

/// From how an attempt ended to what is written.
fn judge(registration: Option<&Registration>, job: &Claimed, ended: Ended, ran: Duration) -> Settlement {
    let options = registration.map(Registration::options);
    let backoff = options.map(|options| options.backoff).unwrap_or_default();
    let (attempt, most) = (job.attempt.unsigned_abs().into(), job.max_attempts.unsigned_abs().into());
    let verdict = verdict(ended.outcome, attempt, most, &backoff, fastrand::f64());
    Settlement {
        verdict,
        keep: options.is_none_or(|options| options.retain != Retain::None),
        ran,
        output: ended.output.map(without_nul),
        error: ended.error.map(storable),
        ..release(job)
    }
}

/// The verdict for a job that was not begun, or is to be broken off.
fn release(job: &Claimed) -> Settlement {
    Settlement {
        token: job.token,
        id: job.id,
        lane: job.lane,
        attempt: job.attempt,
        crashes: job.crashes,
        verdict: Verdict::Release,
        keep: true,
        ran: Duration::ZERO,
        output: None,
        error: None,
    }
}

/// An error text that the database takes: without NUL, at most 8 KiB.
fn storable(mut text: String) -> String {
    if text.len() > LONGEST_ERROR {
        text.truncate(text.floor_char_boundary(LONGEST_ERROR));
    }
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// JSON text in which an escaped NUL, which jsonb cannot hold, is U+FFFD.
fn without_nul(json: String) -> String {
    if !json.contains("\\u0000") {
        return json;
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(at) = rest.find('\\') {
        let (escape, next) = if rest[at..].starts_with("\\u0000") { ("\\ufffd", at + 6) } else { (&rest[at..at + 2], at + 2) };
        out.push_str(&rest[..at]);
        out.push_str(escape);
        rest = &rest[next..];
    }
    out + rest
}

/// How fast jobs are finished here.
struct Pace {
    since: Instant,
    finished: usize,
    /// How many jobs were finished in the last tenth of a second.
    ahead: usize,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { since: now, finished: 0, ahead: 0 }
    }

    /// Measured over at least 5 ms; falls by no more than half at a time, so that one slow look does not empty the slots.
    fn ahead(&mut self, now: Instant, finished: usize) -> usize {
        let passed = now.saturating_duration_since(self.since);
        if passed >= Duration::from_millis(5) {
            let rate = (finished - self.finished) as f64 / passed.as_secs_f64();
            let measured = (rate * 0.1) as usize;
            let gone = if passed > Duration::from_secs(1) { 0 } else { self.ahead / 2 };
            *self = Self { since: now, finished, ahead: measured.max(gone) };
        }
        self.ahead
    }
}

/// A lock that a panic elsewhere left poisoned is as good as any: nothing is half-written under these.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f02_a_nul_in_an_output_becomes_the_replacement_character() {
        assert_eq!(without_nul(r#""a\u0000b""#.to_owned()), r#""a\ufffdb""#);
        assert_eq!(without_nul(r#""a\\u0000b\"\u0000""#.to_owned()), r#""a\\u0000b\"\ufffd""#);
    }

    #[test]
    fn f17_a_long_error_is_cut_at_a_character() {
        let text = storable("é".repeat(LONGEST_ERROR));
        assert_eq!(text.len(), LONGEST_ERROR);
        assert_eq!(storable(format!("x{}", "é".repeat(LONGEST_ERROR))).len(), LONGEST_ERROR - 1);
    }

    #[test]
    fn slow_jobs_are_not_hoarded_and_fast_ones_travel_together() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!(pace.ahead(start + Duration::from_millis(10), 0), 0);
        assert_eq!(pace.ahead(start + Duration::from_millis(20), 100), 1000);
        assert_eq!(pace.ahead(start + Duration::from_secs(20), 101), 0);
    }
}
