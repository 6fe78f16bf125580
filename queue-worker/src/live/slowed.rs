//! Limits that handlers have slowed down, until the store knows. Pure: no database access.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// Slow-downs that are not stored yet.
#[derive(Debug, Default)]
pub(crate) struct Slowed {
    pauses: Mutex<Vec<SlowDown>>,
    notify: Notify,
}

/// No job starts under these limits before `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlowDown {
    pub(crate) gates: Vec<i64>,
    pub(crate) until: Instant,
    /// Earliest time of the next write.
    not_before: Instant,
}

impl Slowed {
    /// Records that no job starts under these limits for this duration.
    pub(crate) fn note(&self, gates: Vec<i64>, wait: Duration) {
        let now = Instant::now();
        let Some(until) = now.checked_add(wait).filter(|_| !gates.is_empty()) else { return };
        let mut pauses = self.pauses();
        match pauses.iter_mut().find(|known| known.gates == gates) {
            Some(known) => known.until = until.max(known.until),
            None => pauses.push(SlowDown { gates, until, not_before: now }),
        }
        self.notify.notify_one();
    }

    /// Returns until when no job starts under any of these limits, as far as the store may not know.
    pub(crate) fn holds(&self, gates: &[i64]) -> Option<Instant> {
        let now = Instant::now();
        let pauses = self.pauses();
        let held = pauses.iter().filter(|known| known.until > now && known.gates.iter().any(|gate| gates.contains(gate)));
        held.map(|known| known.until).max()
    }

    /// Waits for the next slow-down to store. Forgets expired ones.
    pub(crate) async fn next(&self) -> SlowDown {
        loop {
            let (next, now) = (self.first(), Instant::now());
            match next {
                Some(next) if next.not_before <= now => return next,
                Some(next) => drop(tokio::time::timeout_at(next.not_before.into(), self.notify.notified()).await),
                None => self.notify.notified().await,
            }
        }
    }

    fn first(&self) -> Option<SlowDown> {
        let (mut pauses, now) = (self.pauses(), Instant::now());
        pauses.retain(|known| known.until > now);
        pauses.iter().min_by_key(|known| known.not_before).cloned()
    }

    /// Records that this one is stored. A later time recorded meanwhile is stored as well.
    pub(crate) fn told(&self, told: &SlowDown) {
        self.pauses().retain(|known| known.gates != told.gates || known.until > told.until);
    }

    /// Records that storing this one failed, and retries after this time.
    pub(crate) fn put_off(&self, told: &SlowDown, wait: Duration) {
        for known in self.pauses().iter_mut().filter(|known| known.gates == told.gates) {
            known.not_before = Instant::now() + wait;
        }
    }

    /// No update under this lock can be left incomplete, so a poisoned lock is usable.
    fn pauses(&self) -> MutexGuard<'_, Vec<SlowDown>> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_each_limit_the_latest_time_is_told_and_what_failed_does_not_go_before_others() {
        let (slowed, short, long) = (Slowed::default(), Duration::from_secs(5), Duration::from_secs(9));
        slowed.note(vec![1], long);
        slowed.note(vec![1], short);
        let first = slowed.next().await;
        assert!(first.gates == [1] && first.until > Instant::now() + short);
        assert!(slowed.holds(&[1, 2]) == Some(first.until) && slowed.holds(&[2]).is_none());
        slowed.put_off(&first, short);
        slowed.note(vec![2], short);
        let second = slowed.next().await;
        assert_eq!(second.gates, [2]);
        slowed.told(&second);
        assert!(slowed.holds(&[2]).is_none() && slowed.holds(&[1]).is_some());
        slowed.note(vec![1], 2 * long);
        slowed.told(&first);
        assert!(slowed.holds(&[1]).is_some(), "a later time was asked for meanwhile");
    }
}
