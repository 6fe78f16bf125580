//! What waits, what runs, and how fast.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::lanes::LeasedJob;

/// A handler at work, with what it takes to write a verdict without it.
pub(super) struct RunningJob {
    pub(super) claimed: Arc<LeasedJob>,
    pub(super) since: Instant,
    pub(super) reported: bool,
    /// Its handler has ended, and its verdict is on its way to the settle loop.
    pub(super) judged: bool,
    /// It was cancelled, and its handler was told to stop.
    pub(super) cancelling: bool,
}

impl RunningJob {
    pub(super) fn new(claimed: &Arc<LeasedJob>, since: Instant) -> Self {
        Self { claimed: Arc::clone(claimed), since, reported: false, judged: false, cancelling: false }
    }
}

/// How fast jobs are finished here.
pub(super) struct Pace {
    since: Instant,
    finished: usize,
    /// How many jobs were finished in the last tenth of a second.
    ahead: usize,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, finished: 0, ahead: 0 }
    }

    /// Measured over at least 5 ms; falls by no more than half at a time, so that one slow look does not empty the slots.
    pub(super) fn ahead(&mut self, now: Instant, finished: usize) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_jobs_are_not_hoarded_and_fast_ones_travel_together() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!(pace.ahead(start + Duration::from_millis(10), 0), 0);
        assert_eq!(pace.ahead(start + Duration::from_millis(20), 100), 1000);
        assert_eq!(pace.ahead(start + Duration::from_secs(20), 101), 0);
    }
}
