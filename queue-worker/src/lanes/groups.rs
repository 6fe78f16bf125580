//! Lanes that limits cover: claimed apart from the others, all of the same limits together. Does not claim.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::lane::Lane;
use crate::live::{Paused, Under};

/// The lanes that the same limits cover.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) under: Under,
    /// Suspects' are not among them, nor lined ones, which are claimed from by the names of their twins.
    pub(crate) lanes: Vec<i64>,
    /// The priority of its best lane.
    pub(crate) best: i16,
    /// In which queues they are.
    pub(crate) queues: Vec<String>,
}

/// All groups.
#[derive(Default)]
pub(crate) struct Groups {
    of_lanes: HashMap<i64, Arc<Group>>,
    /// By the gates of their limits.
    all: HashMap<Arc<[i64]>, Arc<Group>>,
    /// Those whose limits have no permits: nobody asks their lanes.
    shut: HashSet<Arc<[i64]>>,
    /// Those of them that are shut to some keys only.
    by_key: HashSet<Arc<[i64]>>,
}

impl Groups {
    /// Sorts these lanes anew.
    pub(super) fn sort<'a>(&mut self, lanes: impl Iterator<Item = &'a Lane>, paused: &Paused) {
        let mut all: HashMap<Arc<[i64]>, Group> = HashMap::new();
        let mut of_lanes: Vec<(i64, Arc<[i64]>)> = Vec::new();
        for lane in lanes {
            let Some(under) = paused.under(&lane.queue, lane.job_type) else { continue };
            of_lanes.push((lane.id, Arc::clone(&under.gates)));
            let fresh = |under| Group { under, lanes: Vec::new(), best: i16::MIN, queues: Vec::new() };
            let group = all.entry(Arc::clone(&under.gates)).or_insert_with(|| fresh(under));
            if !lane.solo && !lane.lined {
                group.lanes.push(lane.id);
                group.best = group.best.max(lane.priority);
                if !group.queues.iter().any(|queue| **queue == *lane.queue) {
                    group.queues.push(lane.queue.to_string());
                }
            }
        }
        self.all = all.into_iter().map(|(gates, group)| (gates, Arc::new(group))).collect();
        self.of_lanes = of_lanes.into_iter().filter_map(|(lane, gates)| Some((lane, Arc::clone(self.all.get(&gates)?)))).collect();
        self.shut.retain(|gates| self.all.contains_key(gates));
        self.by_key.retain(|gates| self.all.contains_key(gates));
    }

    /// Whether there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Each of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.all.values()
    }

    /// That of this lane, if limits cover it.
    pub(crate) fn of(&self, lane: i64) -> Option<&Arc<Group>> {
        self.of_lanes.get(&lane)
    }

    /// Whether limits cover this lane.
    pub(crate) fn cover(&self, lane: i64) -> bool {
        self.of_lanes.contains_key(&lane)
    }

    /// From now on the lanes under these limits are worth asking, or not.
    pub(crate) fn shut(&mut self, gates: &Arc<[i64]>, shut: bool) {
        if shut {
            self.shut.insert(Arc::clone(gates));
        } else {
            self.shut.remove(gates);
        }
    }

    /// Where they are shut, it is to some keys only, or to all.
    pub(crate) fn shut_by_key(&mut self, gates: &Arc<[i64]>, by_key: bool) {
        if by_key {
            self.by_key.insert(Arc::clone(gates));
        } else {
            self.by_key.remove(gates);
        }
    }

    /// All are worth asking.
    pub(crate) fn open_all(&mut self) {
        self.shut.clear();
        self.by_key.clear();
    }

    /// Whether some have no permits.
    pub(super) fn any_is_shut(&self) -> bool {
        !self.shut.is_empty()
    }

    /// Whether nothing of any key could begin in this lane.
    pub(super) fn is_shut_to_all(&self, lane: i64) -> bool {
        self.of(lane).is_some_and(|group| self.shut.contains(&group.under.gates) && !self.by_key.contains(&group.under.gates))
    }

    /// Whether nothing could begin in this lane, as far as is known.
    pub(super) fn is_shut(&self, lane: i64) -> bool {
        self.of(lane).is_some_and(|group| self.shut.contains(&group.under.gates))
    }
}

#[cfg(test)]
mod tests {
    use queue_core::Registry;

    use super::*;
    use crate::live::{LimitRow, PauseRow, Pauses};

    #[test]
    fn lanes_under_the_same_limits_are_one_group_and_those_of_suspects_are_not_claimed_with_it() {
        let lane = |id, queue: &str, solo| Lane {
            id,
            queue: queue.into(),
            job_type: "t",
            version: 1,
            priority: id as i16,
            solo,
            lined: false,
            fair: false,
        };
        let limit = LimitRow { gate: 7, revision: 1, most: Some(3), timed: false, keyed: false };
        let row = PauseRow { number: 1, queue: "q".to_owned(), job_type: "*".to_owned(), limit: Some(limit) };
        let paused = Pauses::new(Registry::new()).read(vec![row]).unwrap();
        let lanes = [lane(1, "q", false), lane(2, "q", false), lane(3, "q", true), lane(4, "other", false)];
        let mut groups = Groups::default();
        groups.sort(lanes.iter(), &paused);
        let group = Arc::clone(groups.of(1).unwrap());
        assert_eq!((group.lanes.as_slice(), group.best, group.under.most), ([1, 2].as_slice(), 2, 3));
        assert!(groups.cover(3) && !groups.cover(4) && groups.iter().count() == 1);
        groups.shut(&group.under.gates, true);
        assert!(groups.is_shut(3) && groups.is_shut_to_all(3) && !groups.is_shut(4));
        groups.shut_by_key(&group.under.gates, true);
        assert!(groups.is_shut(3) && !groups.is_shut_to_all(3), "others may be tried");
        groups.sort(lanes[3..].iter(), &paused);
        groups.sort(lanes.iter(), &paused);
        assert!(!groups.is_shut(3), "what went and came again is open");
    }
}
