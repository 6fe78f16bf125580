//! Whose turn it is in fair lanes: after which line each goes on. Does not touch the database.

use std::collections::HashMap;

/// The lined twin of a plain lane, and the plain lane of a lined one; `queue.twin_of` in SQL says the same.
pub(super) fn twin_of(lane: i64) -> i64 {
    lane ^ 0x5555_5555_5555_5555
}

/// How far each fair lane has come, and the highest place that was claimed of it.
#[derive(Default)]
pub(super) struct Turns {
    after: HashMap<i64, i64>,
    highest: HashMap<i64, i64>,
}

impl Turns {
    /// The line after which a lane goes on. Workers begin anywhere, or they would all begin with the same.
    pub(super) fn after(&mut self, lane: i64) -> i64 {
        *self.after.entry(lane).or_insert_with(|| fastrand::i64(..))
    }

    /// A lane has come to this line, and this place in that was claimed.
    pub(super) fn come(&mut self, lane: i64, line: i64, place: i64) {
        self.after.insert(lane, line);
        let highest = self.highest.entry(lane).or_insert(place);
        *highest = place.max(*highest);
    }

    /// A lane goes on after this line, whether or not any job of it was claimed.
    pub(super) fn reach(&mut self, lane: i64, line: i64) {
        self.after.insert(lane, line);
    }

    /// The highest place that was claimed of this lane.
    pub(super) fn highest(&self, lane: i64) -> Option<i64> {
        self.highest.get(&lane).copied()
    }

    pub(super) fn retain(&mut self, is_known: impl Fn(i64) -> bool) {
        self.after.retain(|lane, _| is_known(*lane));
        self.highest.retain(|lane, _| is_known(*lane));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_goes_on_after_its_last_line() {
        let mut turns = Turns::default();
        turns.come(1, 10, 5);
        turns.come(2, 20, 7);
        turns.come(1, 11, 3);
        assert_eq!((turns.after(1), turns.after(2), turns.highest(1), turns.highest(3)), (11, 20, Some(5), None));
        let anywhere = turns.after(3);
        assert_eq!(turns.after(3), anywhere, "until it has come further");
        turns.reach(2, 30);
        assert_eq!((turns.after(2), turns.highest(2)), (30, Some(7)), "past lines that had no room");
        turns.retain(|lane| lane == 2);
        assert_eq!((turns.after(2), turns.highest(1)), (30, None));
    }

    #[test]
    fn a_lane_is_the_twin_of_its_twin() {
        assert_eq!(twin_of(1), 6_148_914_691_236_517_204);
        assert_eq!(twin_of(twin_of(-7)), -7);
    }
}
