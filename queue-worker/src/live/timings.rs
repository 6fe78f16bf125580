//! How long something took, over and over: a histogram, and the sum.

use std::time::Duration;

use queue_core::operate::Histogram;

/// How long something took each time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timings {
    pub(crate) lengths: Histogram,
    pub(crate) sum: Duration,
}

impl Timings {
    /// Once more.
    pub(crate) fn record(&mut self, took: Duration) {
        self.lengths.record(took);
        self.sum = self.sum.saturating_add(took);
    }

    /// What the other has, too.
    pub(crate) fn add(&mut self, other: &Self) {
        self.lengths.add(&other.lengths);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How often.
    #[cfg(any(test, feature = "metrics", feature = "otel"))]
    pub(crate) fn count(&self) -> u64 {
        self.lengths.count()
    }
}
