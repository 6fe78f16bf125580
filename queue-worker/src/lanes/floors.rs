//! Where the jobs of each lane begin.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// A lane's floor is a place below which are dead entries, and now and then a job whose transaction committed late.
#[derive(Default)]
pub(super) struct Floors {
    of: HashMap<i64, i64>,
    /// When the database was asked for a place at which lanes begin that have nothing.
    asked: Option<Instant>,
}

/// It is asked no more often than this.
const PAUSE: Duration = Duration::from_secs(10);

impl Floors {
    /// From where on to look for this lane's jobs.
    pub(super) fn get(&self, lane: i64) -> i64 {
        self.of.get(&lane).copied().unwrap_or(0)
    }

    /// These lanes' jobs now begin here.
    pub(super) fn raise(&mut self, lowest: impl IntoIterator<Item = (i64, i64)>) {
        self.of.extend(lowest);
    }

    /// Whether the database may be asked for a place at which lanes begin that have nothing.
    pub(super) fn may_ask(&self) -> bool {
        self.asked.is_none_or(|at| at.elapsed() >= PAUSE)
    }

    /// It was asked: these lanes have nothing, and begin there.
    pub(super) fn begin_at(&mut self, place: i64, empty: impl Iterator<Item = i64>) {
        self.asked = Some(Instant::now());
        for lane in empty {
            let floor = self.of.entry(lane).or_insert(place);
            *floor = place.max(*floor);
        }
    }

    /// Forgets them.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets those of other lanes.
    pub(super) fn retain(&mut self, is_known: impl Fn(&i64) -> bool) {
        self.of.retain(|lane, _| is_known(lane));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_are_empty_begin_where_the_database_says_and_no_lower_than_before() {
        let mut floors = Floors::default();
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
