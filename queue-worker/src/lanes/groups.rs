//! Groups of lanes, each of which has a claimer: lanes under the same limits, lanes of handlers that take batches, lanes whose jobs stand in lines, and
//! all others. Does not claim.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use super::lane::{Lane, MANY};
use crate::live::{ClaimerState, Hint, Paused, Under};

/// Lanes that are claimed together.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// The limits that cover them; without gates there are none.
    pub(crate) under: Under,
    /// Suspects' are not among them, nor lined ones, which are claimed from by the names of their twins.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) kind: GroupKind,
    /// What its claimer is told.
    pub(crate) hint: Arc<Hint>,
    /// The pauses by which this was found out.
    pub(crate) paused: Arc<Paused>,
}

/// How jobs of a group are claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct GroupKind {
    /// Their handlers take batches; not so under a rate, where each job begins by itself.
    pub(crate) takes_batches: bool,
    /// They stand in lines, and no limit covers them.
    pub(crate) in_lines: bool,
}

/// What the lanes of a group have in common: the gates of their limits, if there are any, and their kind.
pub(crate) type GroupKey = (Arc<[i64]>, GroupKind);

/// All groups.
#[derive(Default)]
pub(crate) struct Groups {
    of_lanes: HashMap<i64, GroupKey>,
    all: HashMap<GroupKey, Arc<Group>>,
}

impl Group {
    /// The most jobs of one claim of this group, where `most` is the limit for any claim.
    pub(crate) fn most(&self, most: usize) -> usize {
        if self.is_limited() { self.under.most.max(1).min(most) } else { most }
    }

    /// Whether there are too many lanes to ask each one.
    pub(crate) fn are_many(&self) -> bool {
        self.lanes.len() > MANY
    }

    /// Whether limits cover its lanes.
    pub(crate) fn is_limited(&self) -> bool {
        !self.under.gates.is_empty()
    }

    /// Whether its claimer is to be told which lanes hold jobs: it waits for jobs, of some key at least if that is enough, or asks only those that it was
    /// told of.
    fn waits(&self, of_some_key: bool) -> bool {
        match self.hint.state() {
            ClaimerState::Resting => true,
            ClaimerState::Active => self.are_many(),
            ClaimerState::ShutByKey => of_some_key,
            ClaimerState::Shut => false,
        }
    }
}

impl Groups {
    /// Sorts these lanes anew.
    pub(super) fn sort<'a>(&mut self, lanes: impl Iterator<Item = &'a Lane>, paused: &Arc<Paused>, takes_batches: impl Fn(&str) -> bool) {
        let mut all: HashMap<GroupKey, Group> = HashMap::new();
        self.of_lanes.clear();
        for lane in lanes {
            let under = paused.under(&lane.queue, lane.job_type);
            let is_limited = under.is_some();
            if !is_limited && (lane.solo || lane.lined) {
                continue;
            }
            let under = under.unwrap_or_default();
            let kind = GroupKind { takes_batches: !under.timed && takes_batches(lane.job_type), in_lines: !is_limited && lane.fair };
            let key = (Arc::clone(&under.gates), kind);
            self.of_lanes.insert(lane.id, key.clone());
            let fresh = |key: &GroupKey| {
                let hint = self.all.get(key).map_or_else(|| Hint::of(&key.0), |known| Arc::clone(&known.hint));
                Group { under, lanes: Vec::new(), kind, hint, paused: Arc::clone(paused) }
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

    /// Each of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GroupKey, &Arc<Group>)> {
        self.all.iter()
    }

    /// This one.
    pub(crate) fn get(&self, key: &GroupKey) -> Option<&Arc<Group>> {
        self.all.get(key)
    }

    /// That of this lane, if it is in one.
    pub(crate) fn of(&self, lane: i64) -> Option<&Arc<Group>> {
        self.of_lanes.get(&lane).and_then(|key| self.all.get(key))
    }

    /// Whether some claimers claim, or wait for slots.
    pub(crate) fn any_is_active(&self) -> bool {
        self.all.values().any(|group| group.hint.state() == ClaimerState::Active)
    }

    /// Whether claims of some fail that no limit covers.
    pub(crate) fn any_fails(&self) -> bool {
        self.all.values().any(|group| group.hint.fails.load(SeqCst))
    }

    /// Whether some claimers wait to be told which lanes hold jobs.
    pub(crate) fn any_waits(&self) -> bool {
        self.all.values().any(|group| group.waits(true))
    }

    /// Whether some claimers have no permit for jobs that may be there.
    pub(super) fn any_is_shut(&self) -> bool {
        self.all.values().any(|group| matches!(group.hint.state(), ClaimerState::Shut | ClaimerState::ShutByKey))
    }

    /// Whether nothing of any key could begin in this lane.
    pub(super) fn is_shut_to_all(&self, lane: i64) -> bool {
        self.of(lane).is_some_and(|group| group.hint.state() == ClaimerState::Shut)
    }

    /// Whether the claimer of this lane, if it has one, waits to be told that it holds jobs; of some key at least, if that is enough.
    pub(super) fn wait_for(&self, lane: i64, of_some_key: bool) -> bool {
        self.of(lane).is_none_or(|group| group.waits(of_some_key))
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
        assert_eq!((ids.as_slice(), group.most(500), groups.iter().count()), ([1, 2].as_slice(), 3, 2));
        let plain = groups.of(4).unwrap();
        assert_eq!((plain.lanes[0].id, plain.lanes.len(), plain.most(500)), (4, 1, 500));
        plain.hint.show(ClaimerState::Resting);
        group.hint.show(ClaimerState::Shut);
        assert!(!groups.wait_for(3, true) && groups.is_shut_to_all(3) && groups.wait_for(4, false) && !groups.any_is_active());
        group.hint.show(ClaimerState::ShutByKey);
        assert!(groups.wait_for(3, true) && !groups.wait_for(3, false) && !groups.is_shut_to_all(3), "others may be tried");
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
            let mut lanes = [lane(1, "single"), lane(2, "batch")];
            groups.sort(lanes.iter(), &paused, |job_type| job_type == "batch");
            assert_eq!((groups.iter().count(), groups.of(2).map(|group| group.kind.takes_batches)), (count, Some(!timed)));
            lanes[0].fair = true;
            groups.sort(lanes.iter(), &Arc::default(), |job_type| job_type == "batch");
            let kinds = [1, 2].map(|lane| groups.of(lane).map(|group| (group.kind.takes_batches, group.kind.in_lines)));
            assert_eq!(kinds, [Some((false, true)), Some((true, false))], "without a limit");
        }
    }
}
