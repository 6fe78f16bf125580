//! Position of a claimer in each fair lane: the fair queue after which the next claim continues. This module performs no I/O.

use std::collections::HashMap;

/// Returns the paired lane of `lane`. A pair consists of a plain lane and the lane with its fair queues. Must match `queue.paired_lane`
/// in SQL.
pub(super) fn paired_lane(lane: i64) -> i64 {
    lane ^ 0x5555_5555_5555_5555
}

/// For each fair lane, the fair queue after which the next claim continues, and the highest queue position claimed so far.
#[derive(Default)]
pub(super) struct FairCursors {
    after: HashMap<i64, i64>,
    highest: HashMap<i64, i64>,
}

impl FairCursors {
    /// Returns the fair queue after which the next claim from `lane` continues. The initial position is random, so that workers start
    /// with different fair queues.
    pub(super) fn after(&mut self, lane: i64) -> i64 {
        *self.after.entry(lane).or_insert_with(|| fastrand::i64(..))
    }

    /// Records a job claimed from the fair queue `fair_id`.
    pub(super) fn claimed(&mut self, lane: i64, fair_id: i64, place: i64) {
        self.after.insert(lane, fair_id);
        let highest = self.highest.entry(lane).or_insert(place);
        *highest = place.max(*highest);
    }

    /// Sets the position in `lane` to the fair queue `fair_id`, even if no job was claimed from this fair queue.
    pub(super) fn advance(&mut self, lane: i64, fair_id: i64) {
        self.after.insert(lane, fair_id);
    }

    /// Returns the highest queue position claimed from `lane`.
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
        assert_eq!(paired_lane(1), 6_148_914_691_236_517_204);
        assert_eq!(paired_lane(paired_lane(-7)), -7);
    }
}
