//! What the claimer of a group of lanes is told: that jobs may wait there, that a permit may be free. Knows nothing of the database.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;
use uuid::Uuid;

/// What the claimer of one group of lanes waits for, and what it shows of itself.
#[derive(Debug, Default)]
pub(crate) struct Hint {
    /// The limits that cover its lanes.
    gates: Arc<[i64]>,
    notify: Arc<Notify>,
    told: Mutex<Told>,
    state: AtomicU8,
    /// Its last claim failed, though no limit covers its lanes.
    pub(crate) fails: AtomicBool,
}

/// What it was told since it looked last.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Its lanes may hold jobs, these among them.
    pub(crate) jobs: bool,
    pub(crate) lanes: Vec<i64>,
    /// A permit may be free.
    pub(crate) room: bool,
    /// Jobs came too late to begin under its rate.
    pub(crate) late: bool,
    /// Leases of its jobs of which some have ended.
    pub(crate) freed: HashSet<Uuid>,
}

/// What a claimer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimerState {
    /// It claims, or waits for slots.
    Active,
    /// It found nothing, and waits until it is told of jobs.
    Resting,
    /// No permit is left for any of its jobs.
    Shut,
    /// No permit is left for the keys of those that wait, as far as it has seen.
    ShutByKey,
}

impl Hint {
    pub(crate) fn of(gates: &Arc<[i64]>) -> Arc<Self> {
        Arc::new(Self { gates: Arc::clone(gates), ..Self::default() })
    }

    /// What ends the claimer's wait.
    pub(crate) fn notify(&self) -> &Arc<Notify> {
        &self.notify
    }

    /// Whether one of these limits covers its lanes.
    pub(crate) fn is_under(&self, gates: &[i64]) -> bool {
        gates.iter().any(|gate| self.gates.contains(gate))
    }

    /// Tells it something.
    pub(crate) fn tell(&self, what: impl FnOnce(&mut Told)) {
        what(&mut self.told());
        self.notify.notify_one();
    }

    /// Tells it that its lanes may hold jobs, these among them. From now on it is active.
    pub(crate) fn tell_jobs(&self, lanes: impl Iterator<Item = i64>) {
        if self.state() == ClaimerState::Resting {
            self.show(ClaimerState::Active);
        }
        self.tell(|told| {
            told.jobs = true;
            told.lanes.extend(lanes);
        });
    }

    /// What it was told since the last call.
    pub(crate) fn take(&self) -> Told {
        std::mem::take(&mut self.told())
    }

    /// What the claimer is doing.
    pub(crate) fn state(&self) -> ClaimerState {
        match self.state.load(Relaxed) {
            0 => ClaimerState::Active,
            1 => ClaimerState::Resting,
            2 => ClaimerState::Shut,
            _ => ClaimerState::ShutByKey,
        }
    }

    /// Says what it is doing.
    pub(crate) fn show(&self, state: ClaimerState) {
        self.state.store(state as u8, Relaxed);
    }

    /// Shows that it rests, unless it was told something meanwhile.
    pub(crate) fn rest(&self) -> bool {
        let told = self.told();
        let rests = !told.jobs && !told.room;
        if rests {
            self.show(ClaimerState::Resting);
        }
        rests
    }

    /// Nothing is half-written under this lock, so that one which a panic left poisoned is as good as any.
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
