//! Local deadline of the worker's lease. If the process was suspended, this deadline shows that the lease has expired, even before the
//! heartbeat detects the expiry.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Lease deadline that each heartbeat extends. The deadline is checked before a job starts.
#[derive(Clone)]
pub(crate) struct LeaseDeadline {
    since: Instant,
    /// Deadline in nanoseconds after `since`.
    until: Arc<AtomicU64>,
    /// Number of leases that have ended so far.
    ended: Arc<AtomicU64>,
}

/// One lease of the worker. Jobs claimed under this lease do not start under a later lease.
pub(crate) struct OwnLease {
    lease_deadline: LeaseDeadline,
    nth: AtomicU64,
}

impl LeaseDeadline {
    /// Creates an expired deadline.
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), until: Arc::default(), ended: Arc::default() }
    }

    pub(super) fn extend(&self, until: Instant) {
        let until = until.saturating_duration_since(self.since);
        self.until.store(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Ends the lease. Other workers may recover its jobs from now on.
    pub(super) fn end(&self) {
        self.until.store(0, Relaxed);
        self.ended.fetch_add(1, Relaxed);
    }

    /// Returns the time until the deadline, or `None` if there is no lease.
    #[cfg(feature = "health")]
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let until = self.until.load(Relaxed);
        (until > 0).then(|| Duration::from_nanos(until).saturating_sub(self.since.elapsed()))
    }

    /// Returns the worker's current lease.
    pub(crate) fn current(&self) -> OwnLease {
        OwnLease { lease_deadline: self.clone(), nth: AtomicU64::new(self.ended.load(Relaxed)) }
    }
}

impl OwnLease {
    /// Assigns the current lease to jobs claimed from now on. Must be called only when no job of an earlier lease is left.
    pub(crate) fn renew(&self) {
        self.nth.store(self.lease_deadline.ended.load(Relaxed), Relaxed);
    }

    /// Returns whether the lease has ended. Jobs claimed under an ended lease must not start.
    pub(crate) fn has_ended(&self) -> bool {
        let LeaseDeadline { since, until, ended } = &self.lease_deadline;
        self.nth.load(Relaxed) != ended.load(Relaxed) || since.elapsed() >= Duration::from_nanos(until.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_ended_before_the_first_heartbeat_and_once_it_is_not_extended() {
        let (lease_deadline, later) = (LeaseDeadline::new(), Instant::now() + Duration::from_hours(1));
        let one = lease_deadline.current();
        assert!(one.has_ended());
        lease_deadline.extend(later);
        assert!(!one.has_ended());
        lease_deadline.end();
        assert!(one.has_ended());
        lease_deadline.extend(later);
        assert!(one.has_ended() && !lease_deadline.current().has_ended(), "its jobs do not start under the next lease");
        one.renew();
        assert!(!one.has_ended());
        lease_deadline.extend(Instant::now());
        assert!(one.has_ended());
    }
}
