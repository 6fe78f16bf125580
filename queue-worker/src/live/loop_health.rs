//! Health of a worker's loops. Each loop records marks, which costs a read of the clock; health checks and metrics read them.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

#[cfg(any(feature = "metrics", feature = "otel"))]
use super::PauseSnapshot;
use super::{Loop, Pauses, Timings};

/// Marks of one worker.
#[derive(Clone, Default)]
pub(crate) struct LoopHealth(Arc<LoopMarks>);

/// Marks by loop.
#[derive(Default)]
pub(crate) struct LoopMarks {
    /// The poll loop has started another iteration.
    pub(crate) claims: TimeMark,
    /// First of the consecutive failed iterations of the poll loop; cleared by a success.
    pub(crate) failing: TimeMark,
    /// Since when the oldest verdicts being written have been waiting; cleared when there are none.
    pub(crate) settling: TimeMark,
    /// The thread of the loops is not blocked.
    pub(crate) engine: TimeMark,
    /// Since when the login may not read or use the store; cleared when it may.
    pub(crate) no_access: TimeMark,
    /// The store was pruned without a failure.
    pub(crate) pruned: TimeMark,
    /// Number of attempts to prune it.
    pub(crate) prunes: AtomicU64,
    /// Number of retries of writing verdicts.
    pub(crate) settle_retries: AtomicU64,
    /// Durations of claims and of writes of verdicts.
    claim_took: Mutex<Timings>,
    settle_took: Mutex<Timings>,
    /// Pauses as this worker knows them, after its start.
    pub(crate) pauses: OnceLock<Pauses>,
    /// Whether shutdown was requested.
    stopping: AtomicBool,
    /// First loop that ended without a request.
    ended: Mutex<Option<Loop>>,
    /// Last loop that panicked and was restarted, and when.
    panicked: Mutex<Option<(Loop, Instant)>>,
}

/// Pause before a panicked loop is restarted: doubled each time, up to the longest. A loop that ran for that long starts over with the shortest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// A point in time, or none.
pub(crate) struct TimeMark {
    origin: Instant,
    /// Nanoseconds since `START` plus one; zero is none.
    at: AtomicU64,
}

impl Default for TimeMark {
    fn default() -> Self {
        Self { origin: Instant::now(), at: AtomicU64::new(0) }
    }
}

impl TimeMark {
    /// Sets the mark to now.
    pub(crate) fn set(&self) {
        self.at.store(self.now(), Relaxed);
    }

    /// Sets the mark to now unless it is set.
    pub(crate) fn set_first(&self) {
        let _ = self.at.compare_exchange(0, self.now(), Relaxed, Relaxed);
    }

    /// Clears the mark.
    pub(crate) fn clear(&self) {
        self.at.store(0, Relaxed);
    }

    /// Returns the time since the mark.
    pub(crate) fn age(&self) -> Option<Duration> {
        let at = self.at.load(Relaxed).checked_sub(1)?;
        Some(self.origin.elapsed().saturating_sub(Duration::from_nanos(at)))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX - 1).saturating_add(1)
    }
}

impl LoopHealth {
    /// Runs a loop until the worker stops and restarts it after a panic. Records an unexpected end.
    pub(crate) async fn supervise<T, F: Future<Output = T>>(self, which: Loop, start: impl FnMut() -> F) -> T {
        let supervised = SupervisedLoop { loop_health: self, which };
        supervised.loop_health.restart(which, &CancellationToken::new(), start).await
    }

    /// Runs a loop that may end at any time and restarts it after a panic: after a pause, or immediately if `stop` is cancelled.
    pub(crate) async fn restart<T, F: Future<Output = T>>(&self, which: Loop, stop: &CancellationToken, mut start: impl FnMut() -> F) -> T {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let began = Instant::now();
            if let Ok(done) = AssertUnwindSafe(async { start().await }).catch_unwind().await {
                return done;
            }
            if began.elapsed() >= LONGEST_PAUSE {
                pause = SHORTEST_PAUSE;
            }
            *self.0.panicked.lock().unwrap_or_else(PoisonError::into_inner) = Some((which, Instant::now()));
            tracing::error!(name = which.name(), again_in_ms = pause.as_millis(), "a loop of the worker panicked; it starts again");
            let _ = tokio::time::timeout(pause, stop.cancelled()).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Records that shutdown was requested, so that loops may end.
    pub(crate) fn stop(&self) {
        self.0.stopping.store(true, Relaxed);
    }
}

/// Without a reader, durations are not recorded.
impl LoopHealth {
    /// Records the duration of a claim.
    pub(crate) fn note_claim(&self, took: Duration) {
        if cfg!(any(feature = "metrics", feature = "otel")) {
            self.0.claim_took.lock().unwrap_or_else(PoisonError::into_inner).record(took);
        }
    }

    /// Records the duration of a write of verdicts, including retries.
    pub(crate) fn note_settle(&self, took: Duration) {
        if cfg!(any(feature = "metrics", feature = "otel")) {
            self.0.settle_took.lock().unwrap_or_else(PoisonError::into_inner).record(took);
        }
    }
}

#[cfg(any(feature = "metrics", feature = "otel"))]
impl LoopHealth {
    pub(crate) fn claim_took(&self) -> Timings {
        self.0.claim_took.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the pauses in force. Do not keep them: see [`Pauses`].
    pub(crate) fn paused(&self) -> Option<Arc<PauseSnapshot>> {
        self.0.pauses.get().and_then(Pauses::now)
    }

    pub(crate) fn settle_took(&self) -> Timings {
        self.0.settle_took.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg_attr(not(feature = "health"), allow(dead_code, reason = "who looks at a worker is behind a feature"))]
impl LoopHealth {
    /// Whether shutdown was requested.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.load(Relaxed)
    }

    /// Returns the first loop that ended without a request.
    pub(crate) fn ended(&self) -> Option<&'static str> {
        self.0.ended.lock().unwrap_or_else(PoisonError::into_inner).map(Loop::name)
    }

    /// Returns the last loop that panicked and was restarted, and how long ago.
    pub(crate) fn panicked(&self) -> Option<(&'static str, Duration)> {
        let panicked = self.0.panicked.lock().unwrap_or_else(PoisonError::into_inner);
        panicked.map(|(which, at)| (which.name(), at.elapsed()))
    }
}

impl std::ops::Deref for LoopHealth {
    type Target = LoopMarks;

    fn deref(&self) -> &LoopMarks {
        &self.0
    }
}

/// Records the end of a loop.
struct SupervisedLoop {
    loop_health: LoopHealth,
    which: Loop,
}

impl Drop for SupervisedLoop {
    fn drop(&mut self) {
        if !self.loop_health.0.stopping.load(Relaxed) {
            self.loop_health.0.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(self.which);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_the_age_of_its_last_or_first_set() {
        let mark = TimeMark::default();
        assert_eq!(mark.age(), None);
        mark.set_first();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(5) {}
        mark.set_first();
        assert!(mark.age() >= Some(Duration::from_millis(5)), "the first mark is kept");
        let before = mark.age();
        mark.set();
        assert!(mark.age() < before);
        mark.clear();
        assert_eq!(mark.age(), None);
    }

    #[tokio::test]
    async fn a_loop_that_ends_is_recorded_unless_shutdown_was_requested() {
        let loop_health = LoopHealth::default();
        loop_health.clone().supervise(Loop::Poller, async || ()).await;
        loop_health.clone().supervise(Loop::Settle, async || ()).await;
        assert_eq!((loop_health.ended(), loop_health.is_stopping()), (Some("poller"), false));
        assert_eq!(loop_health.panicked(), None);
        let loop_health = LoopHealth::default();
        loop_health.stop();
        loop_health.clone().supervise(Loop::Poller, async || ()).await;
        assert_eq!((loop_health.ended(), loop_health.is_stopping()), (None, true));
    }

    #[tokio::test]
    async fn a_supervised_loop_that_panics_is_restarted_and_recorded() {
        let (loop_health, mut starts) = (LoopHealth::default(), 0);
        let loops = loop_health.clone().supervise(Loop::Schedules, || {
            starts += 1;
            let left = 3 - starts;
            async move { assert_eq!(left, 0, "panics on purpose") }
        });
        loops.await;
        assert_eq!((starts, loop_health.panicked().map(|(name, _)| name)), (3, Some("schedules")));
    }
}
