//! Lanes and the order in which they are served. Performs no I/O.

use std::sync::Arc;

use queue_core::runner::stored_type;

use super::fair_cursors::paired_lane;

/// Lane that this worker serves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lane {
    pub(crate) id: i64,
    pub(crate) queue: Arc<str>,
    pub(crate) job_type: &'static str,
    /// Payload version of the lane's jobs.
    pub(crate) version: u16,
    pub(crate) priority: i16,
    pub(crate) solo: bool,
    /// Whether the lane contains the fair queues of its paired lane. Claims use the id of the paired lane.
    pub(crate) paired: bool,
    /// Whether jobs of the lane are fairly queued. The paired lane contains the fair queues.
    pub(crate) fair: bool,
}

/// Maximum number of lanes that are probed separately. Probing an empty lane costs about a microsecond. If there are more lanes, a single
/// query finds the lanes with jobs.
pub(super) const MANY: usize = 200;

impl Lane {
    /// Returns whether `lanes` contains the lane or its paired lane.
    pub(crate) fn is_among(&self, lanes: &[i64]) -> bool {
        lanes.contains(&self.id) || (self.fair && lanes.contains(&paired_lane(self.id)))
    }
}

/// Returns the stored names of job types. `types` contains the name and the newest version of each type. Each version from 1 up to the
/// newest has a name of its own.
pub(crate) fn stored_types(types: &[(&'static str, u16)]) -> Vec<String> {
    types.iter().flat_map(|(name, newest)| (1..=*newest).map(|version| stored_type(name, version).into_owned())).collect()
}

/// Sorts lanes by priority, highest first. Among lanes of equal priority, fair lanes come last, so that they are adjacent. The lanes of
/// equal priority are then rotated by `turn`.
pub(crate) fn order<'a>(lanes: impl Iterator<Item = &'a Lane>, turn: usize) -> Vec<&'a Lane> {
    let mut lanes: Vec<&Lane> = lanes.collect();
    lanes.sort_unstable_by_key(|lane| (std::cmp::Reverse(lane.priority), lane.fair, lane.id));
    for equals in lanes.chunk_by_mut(|a, b| a.priority == b.priority) {
        equals.rotate_left(turn % equals.len());
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(id: i64, priority: i16) -> Lane {
        Lane { id, queue: "q".into(), job_type: "t", version: 1, priority, solo: false, paired: false, fair: false }
    }

    #[test]
    fn lanes_go_by_priority_and_equals_take_turns() {
        let lanes = [lane(1, 100), lane(2, 100), lane(3, 150), lane(4, 30)];
        let ids = |turn| order(lanes.iter(), turn).into_iter().map(|lane| lane.id).collect::<Vec<_>>();
        assert_eq!(ids(0), [3, 1, 2, 4]);
        assert_eq!(ids(1), [3, 2, 1, 4]);
    }
}
