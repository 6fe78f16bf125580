//! Local lease deadline. A process that was suspended notices here that its lease has expired, before its heartbeat does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Extended by each heartbeat, and checked before any job starts.
#[derive(Clone)]
pub(crate) struct Life {
    since: Instant,
    /// Nanoseconds since `START`.
    until: Arc<AtomicU64>,
    /// Number of leases that have ended.
    ended: Arc<AtomicU64>,
}

/// One lease of the worker. Jobs claimed under it do not start under a later one.
pub(crate) struct OneLife {
    life: Life,
    nth: AtomicU64,
}

impl Life {
    /// Creates an expired deadline.
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), until: Arc::default(), ended: Arc::default() }
    }

    /// Extends the deadline.
    pub(super) fn prolong(&self, until: Instant) {
        let until = until.saturating_duration_since(self.since);
        self.until.store(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Ends the lease: other workers may recover its jobs.
    pub(super) fn end(&self) {
        self.until.store(0, Relaxed);
        self.ended.fetch_add(1, Relaxed);
    }

    /// Returns the time left, if any.
    #[cfg(feature = "health")]
    pub(crate) fn left(&self) -> Option<Duration> {
        let until = self.until.load(Relaxed);
        (until > 0).then(|| Duration::from_nanos(until).saturating_sub(self.since.elapsed()))
    }

    /// Returns the current lease.
    pub(crate) fn present(&self) -> OneLife {
        OneLife { life: self.clone(), nth: AtomicU64::new(self.ended.load(Relaxed)) }
    }
}

impl OneLife {
    /// Makes this the current lease, once none of its earlier jobs is left.
    pub(crate) fn renew(&self) {
        self.nth.store(self.life.ended.load(Relaxed), Relaxed);
    }

    /// Whether jobs of this lease may not start any more.
    pub(crate) fn is_over(&self) -> bool {
        let Life { since, until, ended } = &self.life;
        self.nth.load(Relaxed) != ended.load(Relaxed) || since.elapsed() >= Duration::from_nanos(until.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_over_before_it_begins_and_once_it_is_not_prolonged() {
        let (life, later) = (Life::new(), Instant::now() + Duration::from_hours(1));
        let one = life.present();
        assert!(one.is_over());
        life.prolong(later);
        assert!(!one.is_over());
        life.end();
        assert!(one.is_over());
        life.prolong(later);
        assert!(one.is_over() && !life.present().is_over(), "what is left of it is not begun in the next one");
        one.renew();
        assert!(!one.is_over());
        life.prolong(Instant::now());
        assert!(one.is_over());
    }
}
