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
pub(crate) struct Hint {
    /// The limits that cover its lanes.
    gates: Arc<[i64]>,
    notify: Arc<Notify>,
    told: Mutex<Told>,
    state: AtomicU8,
    /// Whether its last claim failed, if no limit covers its lanes.
    pub(crate) fails: AtomicBool,
}

/// Notices since the claimer last read them.
#[derive(Debug, Default)]
pub(crate) struct Told {
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

impl Hint {
    pub(crate) fn of(gates: &Arc<[i64]>) -> Arc<Self> {
        Arc::new(Self { gates: Arc::clone(gates), ..Self::default() })
    }

    /// Returns what wakes the claimer.
    pub(crate) fn notify(&self) -> &Arc<Notify> {
        &self.notify
    }

    /// Whether any of these limits covers its lanes.
    pub(crate) fn is_under(&self, gates: &[i64]) -> bool {
        gates.iter().any(|gate| self.gates.contains(gate))
    }

    /// Adds a notice and wakes the claimer.
    pub(crate) fn tell(&self, what: impl FnOnce(&mut Told)) {
        what(&mut self.told());
        self.notify.notify_one();
    }

    /// Notifies the claimer that its lanes may hold jobs, at least these. A resting claimer becomes active.
    pub(crate) fn tell_jobs(&self, lanes: impl Iterator<Item = i64>) {
        if self.state() == ClaimerState::Resting {
            self.show(ClaimerState::Active);
        }
        self.tell(|told| {
            told.jobs = true;
            told.lanes.extend(lanes);
        });
    }

    /// Takes the notices since the last call.
    pub(crate) fn take(&self) -> Told {
        std::mem::take(&mut self.told())
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
    pub(crate) fn show(&self, state: ClaimerState) {
        self.state.store(state as u8, Relaxed);
    }

    /// Publishes that the claimer rests, unless there is a notice. Returns whether it does.
    pub(crate) fn rest(&self) -> bool {
        let told = self.told();
        let rests = !told.jobs && !told.room;
        if rests {
            self.show(ClaimerState::Resting);
        }
        rests
    }

    /// No update under this lock can be left incomplete, so a poisoned lock is usable.
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimer_that_was_told_of_jobs_does_not_rest_before_it_has_looked() {
        let gates: Arc<[i64]> = Arc::new([3, 7]);
        let hint = Hint::of(&gates);
        assert!(hint.is_under(&[1, 7]) && !hint.is_under(&[1]) && hint.state() == ClaimerState::Active);
        assert!(hint.rest() && hint.state() == ClaimerState::Resting);
        hint.tell_jobs([5].into_iter());
        assert!(hint.state() == ClaimerState::Active && !hint.rest());
        let told = hint.take();
        assert!(told.jobs && told.lanes == [5] && !hint.take().jobs && hint.rest());
    }
}
