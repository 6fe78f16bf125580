//! Where the jobs of each lane begin.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A lane's floor is a place below which are dead entries, and now and then a job whose transaction committed late. All who look for jobs of a worker
/// have the same.
#[derive(Clone, Default)]
pub(super) struct Floors(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    of: HashMap<i64, i64>,
    /// When the database was asked for a place at which lanes begin that have nothing.
    asked: Option<Instant>,
}

/// It is asked no more often than this.
const PAUSE: Duration = Duration::from_secs(10);

impl Floors {
    /// From where on to look for this lane's jobs.
    pub(super) fn get(&self, lane: i64) -> i64 {
        self.known().of.get(&lane).copied().unwrap_or(0)
    }

    /// These lanes' jobs now begin here.
    pub(super) fn raise(&self, lowest: impl IntoIterator<Item = (i64, i64)>) {
        self.known().of.extend(lowest);
    }

    /// Whether the database may be asked for a place at which lanes begin that have nothing.
    pub(super) fn may_ask(&self) -> bool {
        self.known().asked.is_none_or(|at| at.elapsed() >= PAUSE)
    }

    /// It was asked: these lanes have nothing, and begin there.
    pub(super) fn begin_at(&self, place: i64, empty: impl Iterator<Item = i64>) {
        let mut known = self.known();
        known.asked = Some(Instant::now());
        for lane in empty {
            let floor = known.of.entry(lane).or_insert(place);
            *floor = place.max(*floor);
        }
    }

    /// Forgets them.
    pub(super) fn clear(&self) {
        *self.known() = Known::default();
    }

    /// Forgets those of other lanes.
    pub(super) fn retain(&self, is_known: impl Fn(&i64) -> bool) {
        self.known().of.retain(|lane, _| is_known(lane));
    }

    /// Nothing is half-written under this lock, so that one which a panic left poisoned is as good as any.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_are_empty_begin_where_the_database_says_and_no_lower_than_before() {
        let floors = Floors::default();
        floors.raise([(1, 10), (2, 1000)]);
        assert!(floors.may_ask());
        floors.begin_at(100, [1, 2, 3].into_iter());
        assert_eq!([1, 2, 3, 4].map(|lane| floors.get(lane)), [100, 1000, 100, 0], "the last was not asked");
        assert!(!floors.may_ask(), "not again at once");
        floors.raise([(2, 5)]);
        floors.retain(|lane| *lane == 2);
        assert_eq!([1, 2].map(|lane| floors.get(lane)), [0, 5]);
        floors.clear();
        assert!(floors.get(2) == 0 && floors.may_ask());
    }
}
