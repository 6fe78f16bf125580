//! How dense the stream of jobs is. Pure.

use std::time::{Duration, Instant};

/// Whether jobs come so fast that looking for them costs less than being told: a notification in every transaction makes commits queue up
/// behind each other.
#[derive(Default)]
pub(super) struct Traffic {
    /// How many times in a row some came, each soon after the one before.
    hits: u32,
    last: Option<Instant>,
}

/// So many in a row are dense. With fewer, the idle row would be written and deleted for every small burst.
const ENOUGH: u32 = 3;

/// Jobs that come later than this after the last ones are not of the same stream.
const GAP: Duration = Duration::from_millis(10);

/// While claimers are at work, which may bring nothing for want of slots, the stream is taken to go on for this long.
const LINGER: Duration = Duration::from_millis(250);

impl Traffic {
    /// Some have come.
    pub(super) fn hit(&mut self, now: Instant) {
        let goes_on = self.last.is_some_and(|last| now.saturating_duration_since(last) < GAP);
        *self = Self { hits: if goes_on { self.hits.saturating_add(1) } else { 1 }, last: Some(now) };
    }

    /// Whether it is dense now.
    pub(super) fn is_dense(&self, now: Instant, is_active: bool) -> bool {
        let gap = if is_active { LINGER } else { GAP };
        self.hits >= ENOUGH && self.last.is_some_and(|last| now.saturating_duration_since(last) < gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_come_one_by_one_are_not_dense_and_those_that_follow_each_other_are_until_they_stop() {
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
