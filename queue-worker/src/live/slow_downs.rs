//! Slow-downs that handlers have requested for limits and that have not been stored yet. This module does not access the database.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// Slow-downs that have not been stored yet.
#[derive(Debug, Default)]
pub(crate) struct SlowDowns {
    pauses: Mutex<Vec<SlowDown>>,
    notify: Notify,
}

/// Slow-down of one or more limits. No job starts under these limits before `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlowDown {
    pub(crate) limit_ids: Vec<i64>,
    pub(crate) until: Instant,
    /// Earliest time of the next attempt to store the slow-down.
    not_before: Instant,
}

impl SlowDowns {
    /// Records that no job may start under the limits `limit_ids` for the duration `wait`.
    pub(crate) fn note(&self, limit_ids: Vec<i64>, wait: Duration) {
        let now = Instant::now();
        let Some(until) = now.checked_add(wait).filter(|_| !limit_ids.is_empty()) else { return };
        let mut pauses = self.pauses();
        match pauses.iter_mut().find(|known| known.limit_ids == limit_ids) {
            Some(known) => known.until = until.max(known.until),
            None => pauses.push(SlowDown { limit_ids, until, not_before: now }),
        }
        self.notify.notify_one();
    }

    /// Returns the latest end of the slow-downs that apply to any of the limits `limit_ids`. Considers only slow-downs that have not been
    /// stored yet.
    pub(crate) fn holds(&self, limit_ids: &[i64]) -> Option<Instant> {
        let now = Instant::now();
        let pauses = self.pauses();
        let held = pauses.iter().filter(|known| known.until > now && known.limit_ids.iter().any(|limit_id| limit_ids.contains(limit_id)));
        held.map(|known| known.until).max()
    }

    /// Waits until a slow-down must be written to the store, and returns it. Removes expired slow-downs.
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

    /// Removes a stored slow-down. If a later `until` has been recorded in the meantime, the slow-down is kept and stored again.
    pub(crate) fn mark_stored(&self, stored: &SlowDown) {
        self.pauses().retain(|known| known.limit_ids != stored.limit_ids || known.until > stored.until);
    }

    /// Schedules the next attempt to store a slow-down after the duration `wait`. Called when an attempt has failed.
    pub(crate) fn defer(&self, failed: &SlowDown, wait: Duration) {
        for known in self.pauses().iter_mut().filter(|known| known.limit_ids == failed.limit_ids) {
            known.not_before = Instant::now() + wait;
        }
    }

    /// Locks the slow-downs. A poisoned lock stays usable, because a panic cannot leave the slow-downs half-updated.
    fn pauses(&self) -> MutexGuard<'_, Vec<SlowDown>> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_latest_time_of_each_limit_is_stored_and_a_failed_write_does_not_precede_others() {
        let (slow_downs, short, long) = (SlowDowns::default(), Duration::from_secs(5), Duration::from_secs(9));
        slow_downs.note(vec![1], long);
        slow_downs.note(vec![1], short);
        let first = slow_downs.next().await;
        assert!(first.limit_ids == [1] && first.until > Instant::now() + short);
        assert!(slow_downs.holds(&[1, 2]) == Some(first.until) && slow_downs.holds(&[2]).is_none());
        slow_downs.defer(&first, short);
        slow_downs.note(vec![2], short);
        let second = slow_downs.next().await;
        assert_eq!(second.limit_ids, [2]);
        slow_downs.mark_stored(&second);
        assert!(slow_downs.holds(&[2]).is_none() && slow_downs.holds(&[1]).is_some());
        slow_downs.note(vec![1], 2 * long);
        slow_downs.mark_stored(&first);
        assert!(slow_downs.holds(&[1]).is_some(), "a later time was requested meanwhile");
    }
}
