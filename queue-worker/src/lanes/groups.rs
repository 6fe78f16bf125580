//! Groups of lanes. Each group has its own claimer. Lanes under the same limits, lanes of batch handlers, fair lanes, and the remaining
//! lanes form separate groups.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use super::lane::{Lane, MANY};
use crate::live::{ClaimInbox, ClaimerState, LimitSet, PauseSnapshot};

/// Lanes that are claimed together.
#[derive(Debug, Default)]
pub(crate) struct LaneGroup {
    /// Limits that cover the lanes of the group. Empty if no limit covers the lanes.
    pub(crate) under: LimitSet,
    /// Lanes of the group, except lanes of quarantined jobs and lanes that contain fair queues.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) kind: LaneGroupKind,
    /// State of the group's claimer, and notices for this claimer.
    pub(crate) inbox: Arc<ClaimInbox>,
    /// Pause snapshot from which the group was built.
    pub(crate) paused: Arc<PauseSnapshot>,
}

/// Properties of a lane group that determine how its jobs are claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LaneGroupKind {
    /// Whether the group's handlers take batches. Always `false` under a rate limit, because each job then starts separately.
    pub(crate) takes_batches: bool,
    /// Whether jobs are claimed from fair queues. Always `false` under limits, because jobs under limits are claimed by separate
    /// statements.
    pub(crate) is_fair: bool,
}

/// Key of a lane group: the ids of the limits that cover its lanes, and the kind of the group.
pub(crate) type LaneGroupKey = (Arc<[i64]>, LaneGroupKind);

/// All lane groups of a worker.
#[derive(Default)]
pub(crate) struct LaneGroups {
    of_lanes: HashMap<i64, LaneGroupKey>,
    all: HashMap<LaneGroupKey, Arc<LaneGroup>>,
}

impl LaneGroup {
    /// Returns the maximum number of jobs per claim: `most`, or fewer under limits.
    pub(crate) fn most(&self, most: usize) -> usize {
        if self.is_limited() { self.under.most.max(1).min(most) } else { most }
    }

    /// Returns whether the group has too many lanes to probe each lane separately.
    pub(crate) fn are_many(&self) -> bool {
        self.lanes.len() > MANY
    }

    /// Returns whether limits cover the lanes of the group.
    pub(crate) fn is_limited(&self) -> bool {
        !self.under.limit_ids.is_empty()
    }

    /// Returns whether the claimer must be notified of lanes with jobs. This applies to resting claimers, and to active claimers with
    /// many lanes. With `with_closed_keys`, it also applies to claimers that have no free permit for any key with waiting jobs.
    fn awaits_notice(&self, with_closed_keys: bool) -> bool {
        match self.inbox.state() {
            ClaimerState::Resting => true,
            ClaimerState::Active => self.are_many(),
            ClaimerState::ClosedByKey => with_closed_keys,
            ClaimerState::Closed => false,
        }
    }
}

impl LaneGroups {
    /// Rebuilds the groups from `lanes`. A group keeps its claimer if a group with the same limits and kind existed before.
    pub(super) fn sort<'a>(
        &mut self,
        lanes: impl Iterator<Item = &'a Lane>,
        paused: &Arc<PauseSnapshot>,
        takes_batches: impl Fn(&str) -> bool,
    ) {
        let mut all: HashMap<LaneGroupKey, LaneGroup> = HashMap::new();
        self.of_lanes.clear();
        for lane in lanes {
            let under = paused.limits_of(&lane.queue, lane.job_type);
            let is_limited = under.is_some();
            if !is_limited && (lane.solo || lane.paired) {
                continue;
            }
            let under = under.unwrap_or_default();
            let kind = LaneGroupKind { takes_batches: !under.timed && takes_batches(lane.job_type), is_fair: !is_limited && lane.fair };
            let key = (Arc::clone(&under.limit_ids), kind);
            self.of_lanes.insert(lane.id, key.clone());
            let fresh = |key: &LaneGroupKey| {
                let inbox = self.all.get(key).map_or_else(|| ClaimInbox::of(&key.0), |known| Arc::clone(&known.inbox));
                LaneGroup { under, lanes: Vec::new(), kind, inbox, paused: Arc::clone(paused) }
            };
            let group = all.entry(key.clone()).or_insert_with(|| fresh(&key));
            if !lane.solo && !lane.paired {
                group.lanes.push(lane.clone());
            }
        }
        let same = |known: &&Arc<LaneGroup>, group: &LaneGroup| known.lanes == group.lanes && Arc::ptr_eq(&known.paused, &group.paused);
        let all = all.into_iter().map(|(key, mut group)| {
            group.lanes.sort_unstable_by_key(|lane| lane.id);
            let known = self.all.get(&key).filter(|known| same(known, &group)).cloned();
            (key, known.unwrap_or_else(|| Arc::new(group)))
        });
        self.all = all.collect();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&LaneGroupKey, &Arc<LaneGroup>)> {
        self.all.iter()
    }

    pub(crate) fn get(&self, key: &LaneGroupKey) -> Option<&Arc<LaneGroup>> {
        self.all.get(key)
    }

    /// Returns the group that contains `lane`, if any.
    pub(crate) fn of(&self, lane: i64) -> Option<&Arc<LaneGroup>> {
        self.of_lanes.get(&lane).and_then(|key| self.all.get(key))
    }

    pub(crate) fn any_is_active(&self) -> bool {
        self.all.values().any(|group| group.inbox.state() == ClaimerState::Active)
    }

    /// Returns whether the last claim of any group without limits failed.
    pub(crate) fn any_fails(&self) -> bool {
        self.all.values().any(|group| group.inbox.fails.load(SeqCst))
    }

    /// Returns whether any claimer must be notified of lanes with jobs.
    pub(crate) fn any_awaits_notice(&self) -> bool {
        self.all.values().any(|group| group.awaits_notice(true))
    }

    /// Returns whether any claimer is waiting for permits.
    pub(super) fn any_is_closed(&self) -> bool {
        self.all.values().any(|group| matches!(group.inbox.state(), ClaimerState::Closed | ClaimerState::ClosedByKey))
    }

    /// Returns whether the limits of `lane` prevent all jobs from starting, regardless of their keys.
    pub(super) fn is_closed_to_all(&self, lane: i64) -> bool {
        self.of(lane).is_some_and(|group| group.inbox.state() == ClaimerState::Closed)
    }

    /// Returns whether a notification is required if `lane` has jobs: the lane's claimer must be notified, or the lane has no claimer.
    pub(super) fn awaits_notice(&self, lane: i64, with_closed_keys: bool) -> bool {
        self.of(lane).is_none_or(|group| group.awaits_notice(with_closed_keys))
    }
}

#[cfg(test)]
mod tests {
    use queue_core::registry::Registry;

    use super::*;
    use crate::live::{LimitRow, PauseRow, Pauses};

    #[test]
    fn lanes_under_the_same_limits_form_a_group_without_those_of_quarantined_jobs() {
        let lane = |id, queue: &str, solo| Lane {
            id,
            queue: queue.into(),
            job_type: "t",
            version: 1,
            priority: id as i16,
            solo,
            paired: false,
            fair: false,
        };
        let limit = LimitRow { limit_id: 7, revision: 1, most: Some(3), timed: false, keyed: false };
        let row = PauseRow { number: 1, queue: "q".to_owned(), job_type: "*".to_owned(), limit: Some(limit) };
        let paused = Pauses::new(Registry::new()).read(vec![row]).unwrap();
        let lanes = [lane(1, "q", false), lane(2, "q", false), lane(3, "q", true), lane(4, "other", false)];
        let mut groups = LaneGroups::default();
        let sort = |groups: &mut LaneGroups, lanes: &[Lane]| groups.sort(lanes.iter(), &paused, |_| false);
        sort(&mut groups, &lanes);
        let group = Arc::clone(groups.of(1).unwrap());
        let ids: Vec<i64> = group.lanes.iter().map(|lane| lane.id).collect();
        assert_eq!((ids.as_slice(), group.most(500), groups.iter().count()), ([1, 2].as_slice(), 3, 2));
        let plain = groups.of(4).unwrap();
        assert_eq!((plain.lanes[0].id, plain.lanes.len(), plain.most(500)), (4, 1, 500));
        plain.inbox.set_state(ClaimerState::Resting);
        group.inbox.set_state(ClaimerState::Closed);
        assert!(!groups.awaits_notice(3, true) && groups.is_closed_to_all(3) && groups.awaits_notice(4, false) && !groups.any_is_active());
        group.inbox.set_state(ClaimerState::ClosedByKey);
        assert!(groups.awaits_notice(3, true) && !groups.awaits_notice(3, false) && !groups.is_closed_to_all(3), "others may be tried");
        sort(&mut groups, &lanes);
        assert!(Arc::ptr_eq(&group, groups.of(1).unwrap()), "nothing is new");
        sort(&mut groups, &lanes[1..3]);
        assert!(Arc::ptr_eq(&group.inbox, &groups.of(2).unwrap().inbox), "it is the same claimer");
        sort(&mut groups, &lanes[3..]);
        sort(&mut groups, &lanes);
        assert!(!Arc::ptr_eq(&group.inbox, &groups.of(1).unwrap().inbox), "a group that was removed gets a new claimer");
    }

    #[test]
    fn lanes_of_batch_handlers_form_a_group_of_their_own_unless_under_a_rate_limit() {
        for (timed, count) in [(false, 2), (true, 1)] {
            let limit = LimitRow { limit_id: 7, revision: 1, most: Some(3), timed, keyed: false };
            let row = PauseRow { number: 1, queue: "q".to_owned(), job_type: "*".to_owned(), limit: Some(limit) };
            let paused = Pauses::new(Registry::new()).read(vec![row]).unwrap();
            let lane =
                |id, job_type| Lane { id, queue: "q".into(), job_type, version: 1, priority: 0, solo: false, paired: false, fair: false };
            let mut groups = LaneGroups::default();
            let mut lanes = [lane(1, "single"), lane(2, "batch")];
            groups.sort(lanes.iter(), &paused, |job_type| job_type == "batch");
            assert_eq!((groups.iter().count(), groups.of(2).map(|group| group.kind.takes_batches)), (count, Some(!timed)));
            lanes[0].fair = true;
            groups.sort(lanes.iter(), &Arc::default(), |job_type| job_type == "batch");
            let kinds = [1, 2].map(|lane| groups.of(lane).map(|group| (group.kind.takes_batches, group.kind.is_fair)));
            assert_eq!(kinds, [Some((false, true)), Some((true, false))], "without a limit");
        }
    }
}
