//! Health of a worker's loops. The loops set time marks, and health checks and metrics read the marks. Setting a mark costs one clock
//! read.

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

/// Shared health record of one worker's loops.
#[derive(Clone, Default)]
pub(crate) struct LoopHealth(Arc<LoopMarks>);

/// Time marks and counters of the loops.
#[derive(Default)]
pub(crate) struct LoopMarks {
    /// Start of the latest iteration of the poll loop.
    pub(crate) claims: TimeMark,
    /// Start of the current series of failed iterations of the poll loop. Cleared by a successful iteration.
    pub(crate) failing: TimeMark,
    /// Time at which the settle loop began its current work. Cleared once the loop has handled its verdicts and accepts new verdicts.
    pub(crate) settling: TimeMark,
    /// Time of the last tick of the thread that runs the loops. An old mark means that the thread is blocked.
    pub(crate) engine: TimeMark,
    /// Time at which the login was first found to lack access to parts of the store. Cleared when the login has access.
    pub(crate) no_access: TimeMark,
    /// Time of the last successful pruning of the store. Initially the start of the prune loop.
    pub(crate) pruned: TimeMark,
    /// Number of pruning rounds so far.
    pub(crate) prunes: AtomicU64,
    /// Number of settle retries so far.
    pub(crate) settle_retries: AtomicU64,
    /// Durations of claims.
    claim_took: Mutex<Timings>,
    /// Durations of settles.
    settle_took: Mutex<Timings>,
    /// Pauses as loaded by this worker. Set when the worker starts.
    pub(crate) pauses: OnceLock<Pauses>,
    /// Whether a shutdown was requested.
    stopping: AtomicBool,
    /// First loop that ended without a shutdown request.
    ended: Mutex<Option<Loop>>,
    /// Last loop that panicked and was restarted, and the time of the panic.
    panicked: Mutex<Option<(Loop, Instant)>>,
}

/// Pause before a panicked loop is restarted for the first time. The pause doubles with each panic, up to [`LONGEST_PAUSE`]. After a run
/// that lasted at least [`LONGEST_PAUSE`], the next pause is the shortest pause again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Point in time that several threads can set and read. Initially unset.
pub(crate) struct TimeMark {
    origin: Instant,
    /// Nanoseconds from `origin` to the mark, plus one. Zero if the mark is not set.
    at: AtomicU64,
}

impl Default for TimeMark {
    fn default() -> Self {
        Self { origin: Instant::now(), at: AtomicU64::new(0) }
    }
}

impl TimeMark {
    /// Sets the mark to the current time.
    pub(crate) fn set(&self) {
        self.at.store(self.now(), Relaxed);
    }

    /// Sets an unset mark to the current time. Does not change a mark that is set.
    pub(crate) fn set_first(&self) {
        let _ = self.at.compare_exchange(0, self.now(), Relaxed, Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.at.store(0, Relaxed);
    }

    /// Returns the time since the mark, or `None` if the mark is not set.
    pub(crate) fn age(&self) -> Option<Duration> {
        let at = self.at.load(Relaxed).checked_sub(1)?;
        Some(self.origin.elapsed().saturating_sub(Duration::from_nanos(at)))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX - 1).saturating_add(1)
    }
}

impl LoopHealth {
    /// Runs a loop until the worker stops. The loop is restarted after a panic, and an unexpected end is recorded.
    pub(crate) async fn supervise<T, F: Future<Output = T>>(self, which: Loop, start: impl FnMut() -> F) -> T {
        let supervised = SupervisedLoop { loop_health: self, which };
        supervised.loop_health.restart(which, &CancellationToken::new(), start).await
    }

    /// Runs a loop until its future completes. After a panic, pauses and then restarts the loop. The pause ends early when `stop` is
    /// cancelled.
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
            tracing::error!(name = which.name(), again_in_ms = pause.as_millis(), "a loop of the worker panicked; restarting it");
            let _ = tokio::time::timeout(pause, stop.cancelled()).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Records a shutdown request. Loops that end after the request are not reported.
    pub(crate) fn stop(&self) {
        self.0.stopping.store(true, Relaxed);
    }
}

/// Methods that record durations. They record nothing unless the feature `metrics` or `otel` is enabled.
impl LoopHealth {
    pub(crate) fn note_claim(&self, took: Duration) {
        if cfg!(any(feature = "metrics", feature = "otel")) {
            self.0.claim_took.lock().unwrap_or_else(PoisonError::into_inner).record(took);
        }
    }

    /// Records the duration of a settle, including retries.
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

    /// Returns the pauses in force, or `None` while they are unknown. Callers must drop the result soon, because newer pauses are not
    /// acknowledged while an earlier snapshot is in use. See [`Pauses`].
    pub(crate) fn paused(&self) -> Option<Arc<PauseSnapshot>> {
        self.0.pauses.get().and_then(Pauses::now)
    }

    pub(crate) fn settle_took(&self) -> Timings {
        self.0.settle_took.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg_attr(not(feature = "health"), allow(dead_code, reason = "the readers are behind a feature"))]
impl LoopHealth {
    /// Returns whether a shutdown was requested.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.load(Relaxed)
    }

    /// Returns the name of the first loop that ended without a shutdown request.
    pub(crate) fn ended(&self) -> Option<&'static str> {
        self.0.ended.lock().unwrap_or_else(PoisonError::into_inner).map(Loop::name)
    }

    /// Returns the name of the last loop that panicked and was restarted, and the time since the panic.
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

/// Guard that records the end of a loop on drop.
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
