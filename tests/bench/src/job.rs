//! Job type of the benchmark, and counters of its runs. The payload is about 100 bytes of JSON, and the handler only updates the
//! counters.
//!
//! The type is not in the global registry, so that ordinary workers do not serve it. The benchmark's worker process registers the type
//! explicitly.

use std::{
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use queue_core::{Context, Handler, JobResult, JobType, options::Options};
use serde::{Deserialize, Serialize};

/// Job that does nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Noop {
    /// Number of the job within one measurement.
    pub(crate) n: u64,
    /// Time just before the enqueue, as returned by [`unix_ns`]; 0 if the latency is not measured.
    pub(crate) sent: u64,
    text: String,
}

/// Generates 100 job type names, `bench_00` to `bench_99`. They are aliases of `Noop`, so the same worker serves all names.
macro_rules! names {
    ($($ten:literal)*) => {
        [$(
            concat!("bench_", $ten, "0"), concat!("bench_", $ten, "1"), concat!("bench_", $ten, "2"), concat!("bench_", $ten, "3"),
            concat!("bench_", $ten, "4"), concat!("bench_", $ten, "5"), concat!("bench_", $ten, "6"), concat!("bench_", $ten, "7"),
            concat!("bench_", $ten, "8"), concat!("bench_", $ten, "9"),
        )*]
    };
}

/// Additional names under which jobs of type [`Noop`] may be stored.
pub(crate) const NAMES: [&str; 100] = names!("0" "1" "2" "3" "4" "5" "6" "7" "8" "9");

impl JobType for Noop {
    type Output = ();
    type Cx = queue_core::Context;
    const OPTIONS: Options = Options::new("bench").queue("bench").aliases(&NAMES);
}

/// Job type that no worker serves. The payload and the queue are the same as for [`Noop`], but the priority is higher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Unserved(pub(crate) Noop);

impl JobType for Unserved {
    type Output = ();
    type Cx = queue_core::Context;
    const OPTIONS: Options = Options::new("bench_unserved").queue("bench").priority(200);
}

impl Handler for Noop {
    async fn run(self, _cx: &Context) -> JobResult {
        RUN_COUNTER.note(self.n, self.sent);
        Ok(())
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

    /// Returns the job with number `n` as JSON, for the baselines in plain SQL.
    pub(crate) fn text(n: u64) -> String {
        serde_json::to_string(&Self::numbered(n)).expect("numbers and strings serialize to JSON")
    }
}

/// Returns the Unix time in nanoseconds. The benchmark and its worker processes use the same clock, so their times are comparable.
pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Maximum number of jobs in a measurement.
pub(crate) const MOST_JOBS: u64 = 64 * WORDS as u64;
const WORDS: usize = 1 << 18;

/// Counters of the handlers in this process.
pub(crate) static RUN_COUNTER: RunCounter = RunCounter {
    runs: AtomicU64::new(0),
    first: OnceLock::new(),
    seen: [const { AtomicU64::new(0) }; WORDS],
    waits: Mutex::new(Vec::new()),
    goal: OnceLock::new(),
};

/// Counts handler runs and distinct jobs.
pub(crate) struct RunCounter {
    runs: AtomicU64,
    first: OnceLock<u64>,
    /// Bit set of the numbers of the jobs that have run.
    seen: [AtomicU64; WORDS],
    waits: Mutex<Vec<u64>>,
    goal: OnceLock<(u64, fn(u64))>,
}

impl RunCounter {
    /// Sets the goal: after `runs` runs, the counter calls `reached` with the time of the first run.
    pub(crate) fn set_goal(&self, runs: u64, reached: fn(u64)) {
        let _ = self.goal.set((runs, reached));
    }

    fn note(&self, n: u64, sent: u64) {
        let first = *self.first.get_or_init(unix_ns);
        if sent > 0 {
            let wait = unix_ns().saturating_sub(sent);
            self.waits.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
        }
        if let Some(word) = self.seen.get((n / 64) as usize) {
            word.fetch_or(1 << (n % 64), Relaxed);
        }
        let runs = self.runs.fetch_add(1, Relaxed) + 1;
        match self.goal.get() {
            Some((goal, reached)) if runs == *goal => reached(first),
            _ => {}
        }
    }

    /// Returns the number of handler runs.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.load(Relaxed)
    }

    /// Returns the number of distinct jobs that have run.
    pub(crate) fn distinct(&self) -> u64 {
        self.seen.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }

    /// Removes and returns the latencies from just before the enqueue to the first line of the handler, in nanoseconds.
    pub(crate) fn take_waits(&self) -> Vec<u64> {
        std::mem::take(&mut *self.waits.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_about_a_hundred_bytes() {
        assert!((90..=110).contains(&Noop::text(123_456).len()), "{}", Noop::text(123_456));
    }
}
