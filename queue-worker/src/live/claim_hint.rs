//! Notices for a claimer: jobs may be ready, a permit may be free. Pure: no database access.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;
use uuid::Uuid;

/// Notices for the claimer of one group of lanes, and its published state.
#[derive(Debug, Default)]
pub(crate) struct ClaimHint {
    /// The limits that cover its lanes.
    gates: Arc<[i64]>,
    notify: Arc<Notify>,
    notice: Mutex<ClaimNotice>,
    state: AtomicU8,
    /// Whether its last claim failed, if no limit covers its lanes.
    pub(crate) fails: AtomicBool,
}

/// Notices since the claimer last read them.
#[derive(Debug, Default)]
pub(crate) struct ClaimNotice {
    /// Its lanes may hold jobs, at least those listed in `lanes`.
    pub(crate) jobs: bool,
    pub(crate) lanes: Vec<i64>,
    /// A permit may be free.
    pub(crate) room: bool,
    /// Jobs started too late under its rate limit.
    pub(crate) late: bool,
    /// Leases with finished jobs.
    pub(crate) freed: HashSet<Uuid>,
}

/// State of a claimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimerState {
    /// Claims, or waits for slots.
    Active,
    /// All lanes were empty; waits for a notice of jobs.
    Resting,
    /// No permit is free for any of its jobs.
    Shut,
    /// No permit is free for any waiting key.
    ShutByKey,
}

impl ClaimHint {
    pub(crate) fn of(gates: &Arc<[i64]>) -> Arc<Self> {
        Arc::new(Self { gates: Arc::clone(gates), ..Self::default() })
    }

    /// Returns what wakes the claimer.
    pub(crate) fn wakeup(&self) -> &Arc<Notify> {
        &self.notify
    }

    /// Whether any of these limits covers its lanes.
    pub(crate) fn is_under(&self, gates: &[i64]) -> bool {
        gates.iter().any(|gate| self.gates.contains(gate))
    }

    /// Adds a notice and wakes the claimer.
    pub(crate) fn add(&self, change: impl FnOnce(&mut ClaimNotice)) {
        change(&mut self.notice());
        self.notify.notify_one();
    }

    /// Notifies the claimer that its lanes may hold jobs, at least these. A resting claimer becomes active.
    pub(crate) fn notify_jobs(&self, lanes: impl Iterator<Item = i64>) {
        if self.state() == ClaimerState::Resting {
            self.set_state(ClaimerState::Active);
        }
        self.add(|notice| {
            notice.jobs = true;
            notice.lanes.extend(lanes);
        });
    }

    /// Takes the notices since the last call.
    pub(crate) fn take(&self) -> ClaimNotice {
        std::mem::take(&mut self.notice())
    }

    /// Returns the claimer's state.
    pub(crate) fn state(&self) -> ClaimerState {
        match self.state.load(Relaxed) {
            0 => ClaimerState::Active,
            1 => ClaimerState::Resting,
            2 => ClaimerState::Shut,
            _ => ClaimerState::ShutByKey,
        }
    }

    /// Publishes the claimer's state.
    pub(crate) fn set_state(&self, state: ClaimerState) {
        self.state.store(state as u8, Relaxed);
    }

    /// Publishes that the claimer rests, unless there is a notice. Returns whether it does.
    pub(crate) fn rest(&self) -> bool {
        let notice = self.notice();
        let rests = !notice.jobs && !notice.room;
        if rests {
            self.set_state(ClaimerState::Resting);
        }
        rests
    }

    /// No update under this lock can be left incomplete, so a poisoned lock is usable.
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
