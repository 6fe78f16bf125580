//! Progress of a scan for a key that has a free permit. A scan can span several claims.

use std::time::{Duration, Instant};

/// Pause after a complete scan that found no key with a permit, as a multiple of the scan's duration.
const REST_FACTOR: u32 = 9;

/// Progress of the scan over the keys with waiting jobs, for one set of limits.
#[derive(Default)]
pub(super) struct KeyScan {
    /// Scanned fraction of the keys with waiting jobs. `u64::MAX` stands for all keys.
    scanned: u64,
    took: Duration,
    /// Start time of the next scan, set after a complete scan that found no key with a permit.
    resumes_at: Option<Instant>,
}

impl KeyScan {
    /// Records a claim that scanned the fraction `part` of the keys and found no key with a permit. Returns `None` while the scan is
    /// incomplete, which means that it continues immediately. Once the scan is complete, returns the start time of the next scan, at least
    /// `least` after the scan's end.
    pub(super) fn record_miss(&mut self, part: u64, took: Duration, now: Instant, least: Duration) -> Option<Instant> {
        if let Some(at) = self.resumes_at.filter(|at| now < *at) {
            return Some(at);
        }
        self.resumes_at = None;
        self.scanned = self.scanned.saturating_add(part);
        self.took += took;
        if self.scanned < u64::MAX {
            return None;
        }
        let at = now + least.max(REST_FACTOR * self.took);
        *self = Self { resumes_at: Some(at), ..Self::default() };
        Some(at)
    }

    /// Records a claim that found a key with a permit.
    pub(super) fn record_hit(&mut self) {
        (self.scanned, self.took) = (0, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_scan_continues_immediately_and_a_complete_one_pauses() {
        let (mut scan, now, quarter) = (KeyScan::default(), Instant::now(), u64::MAX / 4);
        let (ms, second) = (Duration::from_millis, Duration::from_secs(1));
        let mut record_miss = |part, at| scan.record_miss(part, ms(100), at, second);
        for _ in 0..4 {
            assert_eq!(record_miss(quarter, now), None, "five in all: four are slightly less than the whole");
        }
        let resumes_at = now + ms(4500);
        assert_eq!(record_miss(quarter, now), Some(resumes_at), "nine times as long as it took");
        assert_eq!(record_miss(u64::MAX, now + ms(4499)), Some(resumes_at), "another miss meanwhile does not extend it");
        assert_eq!(record_miss(quarter, resumes_at), None, "the next one");
        assert_eq!(record_miss(u64::MAX, resumes_at), Some(resumes_at + ms(1800)));
        assert_eq!(KeyScan::default().record_miss(u64::MAX, ms(1), now, second), Some(now + second), "a second at least");
    }

    #[test]
    fn a_hit_restarts_the_scan() {
        let (mut scan, now) = (KeyScan::default(), Instant::now());
        assert_eq!(scan.record_miss(u64::MAX - 1, Duration::ZERO, now, Duration::ZERO), None);
        scan.record_hit();
        assert_eq!(scan.record_miss(u64::MAX - 1, Duration::ZERO, now, Duration::ZERO), None);
        assert!(scan.record_miss(1, Duration::ZERO, now, Duration::ZERO).is_some());
    }
}
