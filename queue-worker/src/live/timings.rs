//! Histogram and sum of durations.

use std::time::Duration;

use queue_core::operate::Histogram;

/// Histogram and sum of the recorded durations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timings {
    pub(crate) lengths: Histogram,
    pub(crate) sum: Duration,
}

impl Timings {
    pub(crate) fn record(&mut self, took: Duration) {
        self.lengths.record(took);
        self.sum = self.sum.saturating_add(took);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.lengths.add(&other.lengths);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Returns the number of recorded durations.
    #[cfg(any(test, feature = "metrics", feature = "otel"))]
    pub(crate) fn count(&self) -> u64 {
        self.lengths.count()
    }
}
