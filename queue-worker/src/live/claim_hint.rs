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
pub(crate) struct ClaimHint {
    /// Ids of the limits that cover the claimer's lanes.
    gates: Arc<[i64]>,
    notify: Arc<Notify>,
    notice: Mutex<ClaimNotice>,
    state: AtomicU8,
    /// Whether the claimer's last claim failed. Used only if no limit covers the lanes.
    pub(crate) fails: AtomicBool,
}

/// Notices that have arrived since the claimer last called [`ClaimHint::take`].
#[derive(Debug, Default)]
pub(crate) struct ClaimNotice {
    /// Whether the claimer's lanes may hold jobs. The lanes in `lanes` probably hold jobs.
    pub(crate) jobs: bool,
    pub(crate) lanes: Vec<i64>,
    /// Whether a permit may be free.
    pub(crate) room: bool,
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
    Shut,
    /// No permit is free for any key with waiting jobs. Jobs with other keys may still start.
    ShutByKey,
}

impl ClaimHint {
    pub(crate) fn of(gates: &Arc<[i64]>) -> Arc<Self> {
        Arc::new(Self { gates: Arc::clone(gates), ..Self::default() })
    }

    /// Returns the handle that wakes the claimer.
    pub(crate) fn wakeup(&self) -> &Arc<Notify> {
        &self.notify
    }

    /// Returns whether any of the limits `gates` covers the claimer's lanes.
    pub(crate) fn is_under(&self, gates: &[i64]) -> bool {
        gates.iter().any(|gate| self.gates.contains(gate))
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
            2 => ClaimerState::Shut,
            _ => ClaimerState::ShutByKey,
        }
    }

    pub(crate) fn set_state(&self, state: ClaimerState) {
        self.state.store(state as u8, Relaxed);
    }

    /// Sets the state to resting, unless a notice of jobs or permits is pending. Returns whether the claimer is resting.
    pub(crate) fn rest(&self) -> bool {
        let notice = self.notice();
        let rests = !notice.jobs && !notice.room;
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
        let gates: Arc<[i64]> = Arc::new([3, 7]);
        let hint = ClaimHint::of(&gates);
        assert!(hint.is_under(&[1, 7]) && !hint.is_under(&[1]) && hint.state() == ClaimerState::Active);
        assert!(hint.rest() && hint.state() == ClaimerState::Resting);
        hint.notify_jobs([5].into_iter());
        assert!(hint.state() == ClaimerState::Active && !hint.rest());
        let notice = hint.take();
        assert!(notice.jobs && notice.lanes == [5] && !hint.take().jobs && hint.rest());
    }
}
