//! Position of a claimer in each fair lane: the fair queue after which the lane continues. Pure: no database access.

use std::collections::HashMap;

/// Returns the lane that holds the fair queues of a plain lane, or the plain lane of such a lane. Same as `queue.twin_of` in SQL.
pub(super) fn twin_of(lane: i64) -> i64 {
    lane ^ 0x5555_5555_5555_5555
}

/// Position in each fair lane, and the highest place claimed from the lane.
#[derive(Default)]
pub(super) struct FairCursors {
    after: HashMap<i64, i64>,
    highest: HashMap<i64, i64>,
}

impl FairCursors {
    /// Returns the fair queue after which a lane continues. The initial position is random, so that workers do not all start with the same
    /// fair queue.
    pub(super) fn after(&mut self, lane: i64) -> i64 {
        *self.after.entry(lane).or_insert_with(|| fastrand::i64(..))
    }

    /// Records a job claimed from the fair queue `line`.
    pub(super) fn claimed(&mut self, lane: i64, line: i64, place: i64) {
        self.after.insert(lane, line);
        let highest = self.highest.entry(lane).or_insert(place);
        *highest = place.max(*highest);
    }

    /// Records that a lane continues after the fair queue `line`, even if no job was claimed from it.
    pub(super) fn advance(&mut self, lane: i64, line: i64) {
        self.after.insert(lane, line);
    }

    /// Returns the highest place claimed from `lane`.
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
    fn each_lane_continues_after_its_last_fair_queue() {
        let mut turns = FairCursors::default();
        turns.claimed(1, 10, 5);
        turns.claimed(2, 20, 7);
        turns.claimed(1, 11, 3);
        assert_eq!((turns.after(1), turns.after(2), turns.highest(1), turns.highest(3)), (11, 20, Some(5), None));
        let anywhere = turns.after(3);
        assert_eq!(turns.after(3), anywhere, "unchanged until a claim advances it");
        turns.advance(2, 30);
        assert_eq!((turns.after(2), turns.highest(2)), (30, Some(7)), "past fair queues without a permit");
        turns.retain(|lane| lane == 2);
        assert_eq!((turns.after(2), turns.highest(1)), (30, None));
    }

    #[test]
    fn a_lane_is_the_twin_of_its_twin() {
        assert_eq!(twin_of(1), 6_148_914_691_236_517_204);
        assert_eq!(twin_of(twin_of(-7)), -7);
    }
}
