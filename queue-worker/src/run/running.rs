//! State of running jobs, and the rate at which jobs finish.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::lanes::LeasedJob;

/// Job whose handler is running. Contains the data needed to settle the job without the handler.
pub(super) struct RunningJob {
    pub(super) leased: Arc<LeasedJob>,
    pub(super) start: Instant,
    /// Whether the handler has been logged as stuck.
    pub(super) is_reported: bool,
    /// Whether the handler has ended and the verdict is being sent to the settle loop.
    pub(super) is_settling: bool,
    /// Whether the job was cancelled and its handler was notified.
    pub(super) is_cancelling: bool,
}

impl RunningJob {
    pub(super) fn new(leased: &Arc<LeasedJob>, start: Instant) -> Self {
        Self { leased: Arc::clone(leased), start, is_reported: false, is_settling: false, is_cancelling: false }
    }
}

/// Estimator of the number of jobs to prefetch, based on the finish rate.
pub(super) struct FinishRate {
    measured_at: Instant,
    finished: usize,
    /// Estimated number of jobs that finish in 100 ms.
    prefetch: usize,
}

impl FinishRate {
    pub(super) fn new(now: Instant) -> Self {
        Self { measured_at: now, finished: 0, prefetch: 0 }
    }

    /// Returns the estimated number of jobs that finish in 100 ms, measured over at least 5 ms.
    ///
    /// The estimate falls by at most half per measurement, so that a single slow interval does not leave the slots empty. The estimate
    /// may fall to zero if the last measurement is more than a second old.
    pub(super) fn prefetch(&mut self, now: Instant, finished: usize) -> usize {
        let elapsed = now.saturating_duration_since(self.measured_at);
        if elapsed >= Duration::from_millis(5) {
            let rate = (finished - self.finished) as f64 / elapsed.as_secs_f64();
            let measured = (rate * 0.1) as usize;
            let minimum = if elapsed > Duration::from_secs(1) { 0 } else { self.prefetch / 2 };
            *self = Self { measured_at: now, finished, prefetch: measured.max(minimum) };
        }
        self.prefetch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_jobs_are_prefetched_and_slow_ones_are_not() {
        let start = Instant::now();
        let mut rate = FinishRate::new(start);
        assert_eq!(rate.prefetch(start + Duration::from_millis(10), 0), 0);
        assert_eq!(rate.prefetch(start + Duration::from_millis(20), 100), 1000);
        assert_eq!(rate.prefetch(start + Duration::from_secs(20), 101), 0);
    }
}
