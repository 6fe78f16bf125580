//! Job type of the benchmark, shared by all queue libraries. The payload is about 100 bytes of JSON, and the handler only counts its runs.
//! Only the trait implementations are specific to a library.

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

/// Job that does nothing.
#[job(name = "noop")]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Noop {
    /// Number of the job within one measurement.
    pub(crate) n: u64,
    /// Time just before the enqueue, as returned by [`unix_ns`]; 0 if the latency is not measured.
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
    /// Returns the job with number `n`.
    pub(crate) fn numbered(n: u64) -> Self {
        Self { n, sent: 0, text: "some sixty bytes of text, so that all in all it has a hundred".to_owned() }
    }

    /// Returns the job with number `n`, with `sent` set to the current time.
    pub(crate) fn sent_now(n: u64) -> Self {
        Self { sent: unix_ns(), ..Self::numbered(n) }
    }
}

/// Returns the Unix time in nanoseconds. The benchmark and its worker processes use the same clock, so their times are comparable.
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

static TALLY: OnceLock<RunCounter> = OnceLock::new();

/// Counters of the handlers in this process.
struct RunCounter {
    goal: u64,
    reached: fn(u64),
    runs: AtomicU64,
    first: OnceLock<u64>,
    /// Bit set of the numbers of the jobs that have run.
    seen: Vec<AtomicU64>,
    waits: Mutex<Vec<u64>>,
}

/// Starts counting handler runs. After `goal` runs, calls `reached` with the time of the first run. Job numbers must be below `goal`.
pub(crate) fn count(goal: u64, reached: fn(u64)) {
    let seen = (0..=goal / 64).map(|_| AtomicU64::new(0)).collect();
    let _ = TALLY.set(RunCounter { goal, reached, runs: AtomicU64::new(0), first: OnceLock::new(), seen, waits: Mutex::default() });
}

/// Counts a run of the job. Every handler calls this function first.
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

/// Counts reported by a worker process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunCounts {
    /// Number of handler runs.
    pub(crate) runs: u64,
    /// Number of distinct jobs that have run.
    pub(crate) distinct: u64,
    /// Sorted latencies in nanoseconds, from just before each enqueue to the first line of the handler.
    pub(crate) waits: Vec<u64>,
}

/// Returns the counts so far, with the latencies recorded since the previous call.
pub(crate) fn seen() -> RunCounts {
    let Some(tally) = TALLY.get() else { return RunCounts::default() };
    let mut waits = std::mem::take(&mut *tally.waits.lock().unwrap_or_else(PoisonError::into_inner));
    waits.sort_unstable();
    let distinct = tally.seen.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum();
    RunCounts { runs: tally.runs.load(Relaxed), distinct, waits }
}
