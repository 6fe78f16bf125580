//! Notices that wake a claimer, for example because jobs may be ready or a permit may be free. This module performs no I/O.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;
use uuid::Uuid;

/// Pending notices for the claimer of a lane group, and the claimer's state as seen by other tasks.
#[derive(Debug, Default)]
pub(crate) struct ClaimInbox {
    /// Ids of the limits that cover the claimer's lanes.
    limit_ids: Arc<[i64]>,
    notify: Arc<Notify>,
    notice: Mutex<ClaimNotice>,
    state: AtomicU8,
    /// Whether the claimer's last claim failed. Used only if no limit covers the lanes.
    pub(crate) fails: AtomicBool,
}

/// Notices that have arrived since the claimer last called [`ClaimInbox::take`].
#[derive(Debug, Default)]
pub(crate) struct ClaimNotice {
    /// Whether the claimer's lanes may hold jobs. The lanes in `lanes` probably hold jobs.
    pub(crate) jobs: bool,
    pub(crate) lanes: Vec<i64>,
    /// Whether a permit may be free.
    pub(crate) permit: bool,
    /// Whether a permit of one of the claimer's rate limits expired before its job started.
    pub(crate) late: bool,
    /// Leases whose finished jobs held permits.
    pub(crate) freed: HashSet<Uuid>,
}

/// Claimer state, as seen by other tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimerState {
    /// The claimer is claiming jobs or waiting for free slots.
    Active,
    /// All lanes were empty. The claimer is waiting for a notice of jobs.
    Resting,
    /// No permit is free for any job of the claimer's lanes.
    Closed,
    /// No permit is free for any key with waiting jobs. Jobs with other keys may still start.
    ClosedByKey,
}

impl ClaimInbox {
    pub(crate) fn of(limit_ids: &Arc<[i64]>) -> Arc<Self> {
        Arc::new(Self { limit_ids: Arc::clone(limit_ids), ..Self::default() })
    }

    /// Returns the handle that wakes the claimer.
    pub(crate) fn wakeup(&self) -> &Arc<Notify> {
        &self.notify
    }

    /// Returns whether any of the limits `limit_ids` covers the claimer's lanes.
    pub(crate) fn is_under(&self, limit_ids: &[i64]) -> bool {
        limit_ids.iter().any(|limit_id| self.limit_ids.contains(limit_id))
    }

    /// Changes the pending notice and wakes the claimer.
    pub(crate) fn add(&self, change: impl FnOnce(&mut ClaimNotice)) {
        change(&mut self.notice());
        self.notify.notify_one();
    }

    /// Notifies the claimer that jobs may be ready, most likely in `lanes`. A resting claimer becomes active.
    pub(crate) fn notify_jobs(&self, lanes: impl Iterator<Item = i64>) {
        if self.state() == ClaimerState::Resting {
            self.set_state(ClaimerState::Active);
        }
        self.add(|notice| {
            notice.jobs = true;
            notice.lanes.extend(lanes);
        });
    }

    /// Returns the notices that arrived since the last call and clears them.
    pub(crate) fn take(&self) -> ClaimNotice {
        std::mem::take(&mut self.notice())
    }

    pub(crate) fn state(&self) -> ClaimerState {
        match self.state.load(Relaxed) {
            0 => ClaimerState::Active,
            1 => ClaimerState::Resting,
            2 => ClaimerState::Closed,
            _ => ClaimerState::ClosedByKey,
        }
    }

    pub(crate) fn set_state(&self, state: ClaimerState) {
        self.state.store(state as u8, Relaxed);
    }

    /// Sets the state to resting, unless a notice of jobs or permits is pending. Returns whether the claimer is resting.
    pub(crate) fn rest(&self) -> bool {
        let notice = self.notice();
        let rests = !notice.jobs && !notice.permit;
        if rests {
            self.set_state(ClaimerState::Resting);
        }
        rests
    }

    /// Locks the pending notice. A poisoned lock stays usable, because no update under the lock can be left incomplete.
    fn notice(&self) -> MutexGuard<'_, ClaimNotice> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimer_with_a_notice_of_jobs_does_not_rest_before_it_has_claimed() {
        let limit_ids: Arc<[i64]> = Arc::new([3, 7]);
        let inbox = ClaimInbox::of(&limit_ids);
        assert!(inbox.is_under(&[1, 7]) && !inbox.is_under(&[1]) && inbox.state() == ClaimerState::Active);
        assert!(inbox.rest() && inbox.state() == ClaimerState::Resting);
        inbox.notify_jobs([5].into_iter());
        assert!(inbox.state() == ClaimerState::Active && !inbox.rest());
        let notice = inbox.take();
        assert!(notice.jobs && notice.lanes == [5] && !inbox.take().jobs && inbox.rest());
    }
}
