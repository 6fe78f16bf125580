//! How far looks for keys that have room have come round all that wait, while they found none. Does not touch the database.

use std::time::{Duration, Instant};

/// Once round in vain, it rests for so many times as long as that took.
const REST: u32 = 9;

/// Of the lanes under the same limits.
#[derive(Default)]
pub(super) struct Round {
    /// How much of all, of which `u64::MAX` is the whole.
    gone: u64,
    took: Duration,
    /// The last one was in vain: the next one begins then.
    rests: Option<Instant>,
}

impl Round {
    /// A claim took so long, looked at this part, and found no key that has room. When the next one is due: at once if nothing is said, for the round
    /// is not over.
    pub(super) fn in_vain(&mut self, part: u64, took: Duration, now: Instant, least: Duration) -> Option<Instant> {
        if let Some(at) = self.rests.filter(|at| now < *at) {
            return Some(at);
        }
        self.rests = None;
        self.gone = self.gone.saturating_add(part);
        self.took += took;
        if self.gone < u64::MAX {
            return None;
        }
        let at = now + least.max(REST * self.took);
        *self = Self { rests: Some(at), ..Self::default() };
        Some(at)
    }

    /// A claim found some.
    pub(super) fn found(&mut self) {
        (self.gone, self.took) = (0, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_goes_on_at_once_until_it_is_over_and_then_rests() {
        let (mut round, now, quarter) = (Round::default(), Instant::now(), u64::MAX / 4);
        let (ms, second) = (Duration::from_millis, Duration::from_secs(1));
        let mut look = |part, at| round.in_vain(part, ms(100), at, second);
        for _ in 0..4 {
            assert_eq!(look(quarter, now), None, "five in all, for four are not quite the whole");
        }
        let rests = now + ms(4500);
        assert_eq!(look(quarter, now), Some(rests), "nine times as long as it took");
        assert_eq!(look(u64::MAX, now + ms(4499)), Some(rests), "whoever looks meanwhile does not make it longer");
        assert_eq!(look(quarter, rests), None, "the next one");
        assert_eq!(look(u64::MAX, rests), Some(rests + ms(1800)));
        assert_eq!(Round::default().in_vain(u64::MAX, ms(1), now, second), Some(now + second), "a second at least");
    }

    #[test]
    fn what_was_found_is_a_new_beginning() {
        let (mut round, now) = (Round::default(), Instant::now());
        assert_eq!(round.in_vain(u64::MAX - 1, Duration::ZERO, now, Duration::ZERO), None);
        round.found();
        assert_eq!(round.in_vain(u64::MAX - 1, Duration::ZERO, now, Duration::ZERO), None);
        assert!(round.in_vain(1, Duration::ZERO, now, Duration::ZERO).is_some());
    }
}
