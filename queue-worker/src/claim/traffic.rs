//! Detects whether jobs arrive in quick succession (dense arrivals). Does not access the database.

use std::time::{Duration, Instant};

/// Detector of job arrivals in quick succession. For dense arrivals, polling costs less than notifications, because a NOTIFY in every
/// transaction serializes the commits of producers.
#[derive(Default)]
pub(super) struct Traffic {
    /// Number of consecutive arrivals, each less than [`GAP`] after the previous arrival.
    hits: u32,
    last: Option<Instant>,
}

/// Minimum number of consecutive arrivals that count as dense. With a lower number, the worker would write and delete its `idle` row for
/// every small burst.
const ENOUGH: u32 = 3;

/// Maximum time between two arrivals that count as consecutive.
const GAP: Duration = Duration::from_millis(10);

/// Duration for which arrivals still count as dense after the last arrival, while claimers are active. The duration is long because active
/// claimers claim no jobs while no slot is free.
const LINGER: Duration = Duration::from_millis(250);

impl Traffic {
    /// Records an arrival of jobs.
    pub(super) fn hit(&mut self, now: Instant) {
        let goes_on = self.last.is_some_and(|last| now.saturating_duration_since(last) < GAP);
        *self = Self { hits: if goes_on { self.hits.saturating_add(1) } else { 1 }, last: Some(now) };
    }

    /// Returns whether arrivals count as dense at `now`.
    pub(super) fn is_dense(&self, now: Instant, is_active: bool) -> bool {
        let gap = if is_active { LINGER } else { GAP };
        self.hits >= ENOUGH && self.last.is_some_and(|last| now.saturating_duration_since(last) < gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_in_quick_succession_are_dense_until_they_stop() {
        let (mut traffic, begin, ms) = (Traffic::default(), Instant::now(), Duration::from_millis);
        for nth in 0..10 {
            traffic.hit(begin + ms(30) * nth);
        }
        let now = begin + ms(270);
        assert!(!traffic.is_dense(now, true));
        traffic.hit(now + ms(5));
        assert!(!traffic.is_dense(now + ms(5), true));
        traffic.hit(now + ms(10));
        assert!(traffic.is_dense(now + ms(19), false) && !traffic.is_dense(now + ms(20), false));
        assert!(traffic.is_dense(now + ms(259), true) && !traffic.is_dense(now + ms(260), true));
    }
}
