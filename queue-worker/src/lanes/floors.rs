//! Floors of lanes. The floor of a lane is the queue position at which claims start to read.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Floors by lane, shared by all claimers of a worker. Below a floor, the index contains dead entries, and occasionally jobs that were
/// already below the floor when they were committed.
#[derive(Clone, Default)]
pub(super) struct Floors(Arc<Mutex<FloorState>>);

#[derive(Default)]
struct FloorState {
    of: HashMap<i64, i64>,
    /// Time of the last query for a new floor of empty lanes.
    queried: Option<Instant>,
}

/// Minimum time between two queries for a new floor of empty lanes.
const QUERY_INTERVAL: Duration = Duration::from_secs(10);

impl Floors {
    /// Returns the floor of `lane`, or zero if the floor is unknown.
    pub(super) fn get(&self, lane: i64) -> i64 {
        self.state().of.get(&lane).copied().unwrap_or(0)
    }

    /// Sets the floor of each lane in `lowest`, which contains pairs of a lane id and the lane's new floor.
    pub(super) fn set(&self, lowest: impl IntoIterator<Item = (i64, i64)>) {
        self.state().of.extend(lowest);
    }

    /// Returns whether a new floor for empty lanes may be queried now.
    pub(super) fn may_query(&self) -> bool {
        self.state().queried.is_none_or(|at| at.elapsed() >= QUERY_INTERVAL)
    }

    /// Raises the floors of the lanes in `empty` to the queried queue position `place`, unless they are already higher. Records the
    /// current time as the time of the query.
    pub(super) fn begin_at(&self, place: i64, empty: impl Iterator<Item = i64>) {
        let mut state = self.state();
        state.queried = Some(Instant::now());
        for lane in empty {
            let floor = state.of.entry(lane).or_insert(place);
            *floor = place.max(*floor);
        }
    }

    pub(super) fn clear(&self) {
        *self.state() = FloorState::default();
    }

    /// Removes the floors of lanes for which `is_known` returns `false`.
    pub(super) fn retain(&self, is_known: impl Fn(&i64) -> bool) {
        self.state().of.retain(|lane, _| is_known(lane));
    }

    /// Locks the floors. A poisoned lock stays usable, because no update under the lock can be left incomplete.
    fn state(&self) -> MutexGuard<'_, FloorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lanes_take_the_queried_floor_unless_theirs_is_higher() {
        let floors = Floors::default();
        floors.set([(1, 10), (2, 1000)]);
        assert!(floors.may_query());
        floors.begin_at(100, [1, 2, 3].into_iter());
        assert_eq!([1, 2, 3, 4].map(|lane| floors.get(lane)), [100, 1000, 100, 0], "the last was not queried");
        assert!(!floors.may_query(), "not again immediately");
        floors.set([(2, 5)]);
        floors.retain(|lane| *lane == 2);
        assert_eq!([1, 2].map(|lane| floors.get(lane)), [0, 5]);
        floors.clear();
        assert!(floors.get(2) == 0 && floors.may_query());
    }
}
