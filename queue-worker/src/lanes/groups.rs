//! Lanes that limits cover: claimed apart from the others, all of the same limits together. Does not claim.

use std::{collections::HashMap, sync::Arc};

use super::lane::Lane;
use crate::live::{ClaimerState, Hint, Paused, Under};

/// The lanes that the same limits cover, those of handlers that take batches apart.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) under: Under,
    /// Suspects' are not among them, nor lined ones, which are claimed from by the names of their twins.
    pub(crate) lanes: Vec<Lane>,
    /// Whether their handlers take batches; not under a rate, where each job begins by itself.
    pub(crate) takes_batches: bool,
    /// What its claimer is told.
    pub(crate) hint: Arc<Hint>,
    /// The pauses by which this was found out.
    pub(crate) paused: Arc<Paused>,
}

/// What a group has in common: the gates of its limits, and whether its handlers take batches.
pub(crate) type GroupKey = (Arc<[i64]>, bool);

/// All groups.
#[derive(Default)]
pub(crate) struct Groups {
    of_lanes: HashMap<i64, GroupKey>,
    all: HashMap<GroupKey, Arc<Group>>,
}

impl Groups {
    /// Sorts these lanes anew.
    pub(super) fn sort<'a>(&mut self, lanes: impl Iterator<Item = &'a Lane>, paused: &Arc<Paused>, takes_batches: impl Fn(&str) -> bool) {
        let mut all: HashMap<GroupKey, Group> = HashMap::new();
        self.of_lanes.clear();
        for lane in lanes {
            let Some(under) = paused.under(&lane.queue, lane.job_type) else { continue };
            let key = (Arc::clone(&under.gates), !under.timed && takes_batches(lane.job_type));
            self.of_lanes.insert(lane.id, key.clone());
            let fresh = |(gates, takes_batches): &GroupKey| {
                let hint =
                    self.all.get(&(Arc::clone(gates), *takes_batches)).map_or_else(|| Hint::of(gates), |known| Arc::clone(&known.hint));
                Group { under, lanes: Vec::new(), takes_batches: *takes_batches, hint, paused: Arc::clone(paused) }
            };
            let group = all.entry(key.clone()).or_insert_with(|| fresh(&key));
            if !lane.solo && !lane.lined {
                group.lanes.push(lane.clone());
            }
        }
        let same = |known: &&Arc<Group>, group: &Group| known.lanes == group.lanes && Arc::ptr_eq(&known.paused, &group.paused);
        let all = all.into_iter().map(|(key, mut group)| {
            group.lanes.sort_unstable_by_key(|lane| lane.id);
            let known = self.all.get(&key).filter(|known| same(known, &group)).cloned();
            (key, known.unwrap_or_else(|| Arc::new(group)))
        });
        self.all = all.collect();
    }

    /// Whether there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// Each of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GroupKey, &Arc<Group>)> {
        self.all.iter()
    }

    /// This one.
    pub(crate) fn get(&self, key: &GroupKey) -> Option<&Arc<Group>> {
        self.all.get(key)
    }

    /// That of this lane, if limits cover it.
    pub(crate) fn of(&self, lane: i64) -> Option<&Arc<Group>> {
        self.of_lanes.get(&lane).and_then(|key| self.all.get(key))
    }

    /// Whether limits cover this lane.
    pub(crate) fn cover(&self, lane: i64) -> bool {
        self.of_lanes.contains_key(&lane)
    }

    /// Whether some claimers do not wait for jobs.
    pub(super) fn any_is_busy(&self) -> bool {
        self.all.values().any(|group| group.hint.state() != ClaimerState::Resting)
    }

    /// Whether nothing of any key could begin in this lane.
    pub(super) fn is_shut_to_all(&self, lane: i64) -> bool {
        self.of(lane).is_some_and(|group| group.hint.state() == ClaimerState::Shut)
    }

    /// Whether the claimer of this lane does not wait for jobs: it finds them, or has no permit for them.
    pub(super) fn is_busy(&self, lane: i64) -> bool {
        self.of(lane).is_some_and(|group| group.hint.state() != ClaimerState::Resting)
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
        let sort = |groups: &mut Groups, lanes: &[Lane]| groups.sort(lanes.iter(), &paused, |_| false);
        sort(&mut groups, &lanes);
        let group = Arc::clone(groups.of(1).unwrap());
        let ids: Vec<i64> = group.lanes.iter().map(|lane| lane.id).collect();
        assert_eq!((ids.as_slice(), group.under.most, groups.iter().count()), ([1, 2].as_slice(), 3, 1));
        assert!(groups.cover(3) && !groups.cover(4));
        group.hint.show(ClaimerState::Shut);
        assert!(groups.is_busy(3) && groups.is_shut_to_all(3) && !groups.is_busy(4));
        group.hint.show(ClaimerState::ShutByKey);
        assert!(groups.is_busy(3) && !groups.is_shut_to_all(3), "others may be tried");
        sort(&mut groups, &lanes);
        assert!(Arc::ptr_eq(&group, groups.of(1).unwrap()), "nothing is new");
        sort(&mut groups, &lanes[1..3]);
        assert!(Arc::ptr_eq(&group.hint, &groups.of(2).unwrap().hint), "it is the same claimer");
        sort(&mut groups, &lanes[3..]);
        sort(&mut groups, &lanes);
        assert!(!Arc::ptr_eq(&group.hint, &groups.of(1).unwrap().hint), "what went and came again has a new one");
    }

    #[test]
    fn those_of_handlers_that_take_batches_are_a_group_of_their_own_unless_there_is_a_rate() {
        for (timed, count) in [(false, 2), (true, 1)] {
            let limit = LimitRow { gate: 7, revision: 1, most: Some(3), timed, keyed: false };
            let row = PauseRow { number: 1, queue: "q".to_owned(), job_type: "*".to_owned(), limit: Some(limit) };
            let paused = Pauses::new(Registry::new()).read(vec![row]).unwrap();
            let lane =
                |id, job_type| Lane { id, queue: "q".into(), job_type, version: 1, priority: 0, solo: false, lined: false, fair: false };
            let mut groups = Groups::default();
            groups.sort([lane(1, "single"), lane(2, "batch")].iter(), &paused, |job_type| job_type == "batch");
            assert_eq!((groups.iter().count(), groups.of(2).map(|group| group.takes_batches)), (count, Some(!timed)));
        }
    }
}
