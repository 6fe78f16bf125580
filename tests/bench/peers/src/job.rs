//! The job of the bench, one type for all queues: about 100 bytes of JSON, and a handler that only counts. Nothing here is of one queue
//! alone but the few lines that make the type theirs.

use std::{
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use graphile_worker::{IntoTaskHandlerResult, TaskHandler, WorkerContext};
use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};

/// A job that does nothing.
#[job(name = "noop")]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Noop {
    /// Its number within one measurement.
    pub(crate) n: u64,
    /// When it was about to be enqueued, as [`unix_ns`]; 0 if nobody wants to know how long it waited.
    sent: u64,
    text: String,
}

impl Handler for Noop {
    async fn run(self, _: &Context) -> JobResult {
        note(&self);
        Ok(())
    }
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        note(&self);
        Ok::<(), String>(())
    }
}

impl Noop {
    /// The job of this number.
    pub(crate) fn numbered(n: u64) -> Self {
        Self { n, sent: 0, text: "some sixty bytes of text, so that all in all it has a hundred".to_owned() }
    }

    /// As above, about to be enqueued now.
    pub(crate) fn sent_now(n: u64) -> Self {
        Self { sent: unix_ns(), ..Self::numbered(n) }
    }
}

/// The clock that the bench and its worker processes share.
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

static TALLY: OnceLock<Tally> = OnceLock::new();

/// What the handlers of this process have seen.
struct Tally {
    goal: u64,
    reached: fn(u64),
    runs: AtomicU64,
    first: OnceLock<u64>,
    /// One bit a job.
    seen: Vec<AtomicU64>,
    waits: Mutex<Vec<u64>>,
}

/// From now on counts the runs of the jobs numbered below `goal`; calls `reached`, with the time of the first run, when there were so many.
pub(crate) fn count(goal: u64, reached: fn(u64)) {
    let seen = (0..=goal / 64).map(|_| AtomicU64::new(0)).collect();
    let _ = TALLY.set(Tally { goal, reached, runs: AtomicU64::new(0), first: OnceLock::new(), seen, waits: Mutex::default() });
}

/// The first line of every handler.
pub(crate) fn note(job: &Noop) {
    let Some(tally) = TALLY.get() else { return };
    let first = *tally.first.get_or_init(unix_ns);
    if job.sent > 0 {
        let wait = unix_ns().saturating_sub(job.sent);
        tally.waits.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
    }
    if let Some(word) = tally.seen.get((job.n / 64) as usize) {
        word.fetch_or(1 << (job.n % 64), Relaxed);
    }
    if tally.runs.fetch_add(1, Relaxed) + 1 == tally.goal {
        (tally.reached)(first);
    }
}

/// What a worker process has seen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// How often a handler ran.
    pub(crate) runs: u64,
    /// Of how many jobs.
    pub(crate) distinct: u64,
    /// From just before each enqueue to the first line of the handler, in nanoseconds; sorted.
    pub(crate) waits: Vec<u64>,
}

/// So far.
pub(crate) fn seen() -> Seen {
    let Some(tally) = TALLY.get() else { return Seen::default() };
    let mut waits = std::mem::take(&mut *tally.waits.lock().unwrap_or_else(PoisonError::into_inner));
    waits.sort_unstable();
    let distinct = tally.seen.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum();
    Seen { runs: tally.runs.load(Relaxed), distinct, waits }
}
