//! When to look below the floors.

use std::time::{Duration, Instant};

/// When to look below the floors: whenever a claim came back short or a second has passed, but never for more than a twentieth of the time,
/// because dead index entries cost more the longer anybody holds a snapshot.
#[derive(Default)]
pub(crate) struct Rescan {
    /// Not before this, lest it take more than a twentieth of the time.
    not_before: Option<Instant>,
    /// At this at the latest, so that a busy worker finds late commits too.
    at_latest: Option<Instant>,
    /// Whether a claim came back short since the last one began.
    pub(crate) owed: bool,
    /// Whether the last one took long: there are many dead index entries.
    pub(crate) is_slow: bool,
}

/// Jobs that come meanwhile do not wait for a look that takes longer than this.
const SLOW: Duration = Duration::from_millis(2);

impl Rescan {
    /// When to claim again before going to sleep: what made the bell ring may lie below a floor.
    pub(crate) fn owed_at(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.owed)
    }

    /// Whether it is high time for one.
    pub(crate) fn is_due(&self) -> bool {
        self.at_latest.is_none_or(|at| Instant::now() >= at)
    }

    /// One begins now: what comes back short from now on is owed another.
    pub(crate) fn begin(&mut self) {
        self.owed = false;
        self.at_latest = Some(Instant::now() + Duration::from_secs(1));
    }

    /// Whether there is time for one.
    pub(crate) fn may(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    /// One took so long, and found so many jobs.
    pub(crate) fn done(&mut self, took: Duration, found: usize) {
        let (now, rest) = (Instant::now(), 20 * took);
        self.is_slow = took > SLOW + Duration::from_micros(50) * u32::try_from(found).unwrap_or(u32::MAX);
        self.not_before = Some(now + rest);
        self.at_latest = Some(now + rest.max(Duration::from_secs(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_rescan_waits_twenty_times_as_long() {
        let mut rescan = Rescan::default();
        assert!(rescan.is_due());
        rescan.begin();
        assert!(!rescan.is_due(), "one is on its way");
        rescan.done(Duration::from_secs(1), 0);
        assert!(!rescan.may(Instant::now() + Duration::from_secs(19)));
        assert!(rescan.may(Instant::now() + Duration::from_secs(21)));
    }
}
