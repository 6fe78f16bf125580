//! Floors: the place at which claims of a lane start.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Floors by lane, shared by all claimers of a worker. Below a floor are dead index entries, and occasionally a job whose transaction committed late.
#[derive(Clone, Default)]
pub(super) struct Floors(Arc<Mutex<FloorState>>);

#[derive(Default)]
struct FloorState {
    of: HashMap<i64, i64>,
    /// When the database was last queried for a floor of empty lanes.
    queried: Option<Instant>,
}

/// Minimum time between such queries.
const QUERY_INTERVAL: Duration = Duration::from_secs(10);

impl Floors {
    /// Returns the floor of this lane.
    pub(super) fn get(&self, lane: i64) -> i64 {
        self.known().of.get(&lane).copied().unwrap_or(0)
    }

    /// Sets the floors of these lanes.
    pub(super) fn raise(&self, lowest: impl IntoIterator<Item = (i64, i64)>) {
        self.known().of.extend(lowest);
    }

    /// Whether a floor for empty lanes may be queried.
    pub(super) fn may_query(&self) -> bool {
        self.known().queried.is_none_or(|at| at.elapsed() >= QUERY_INTERVAL)
    }

    /// Raises the floors of empty lanes to this place, after a query.
    pub(super) fn begin_at(&self, place: i64, empty: impl Iterator<Item = i64>) {
        let mut known = self.known();
        known.queried = Some(Instant::now());
        for lane in empty {
            let floor = known.of.entry(lane).or_insert(place);
            *floor = place.max(*floor);
        }
    }

    /// Forgets all floors.
    pub(super) fn clear(&self) {
        *self.known() = FloorState::default();
    }

    /// Forgets the floors of other lanes.
    pub(super) fn retain(&self, is_known: impl Fn(&i64) -> bool) {
        self.known().of.retain(|lane, _| is_known(lane));
    }

    /// No update under this lock can be left incomplete, so a poisoned lock is usable.
    fn known(&self) -> MutexGuard<'_, FloorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lanes_take_the_queried_floor_unless_theirs_is_higher() {
        let floors = Floors::default();
        floors.raise([(1, 10), (2, 1000)]);
        assert!(floors.may_query());
        floors.begin_at(100, [1, 2, 3].into_iter());
        assert_eq!([1, 2, 3, 4].map(|lane| floors.get(lane)), [100, 1000, 100, 0], "the last was not queried");
        assert!(!floors.may_query(), "not again at once");
        floors.raise([(2, 5)]);
        floors.retain(|lane| *lane == 2);
        assert_eq!([1, 2].map(|lane| floors.get(lane)), [0, 5]);
        floors.clear();
        assert!(floors.get(2) == 0 && floors.may_query());
    }
}
