//! Lanes of a claimer, with their floors, payload sizes and positions. Performs no I/O.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use super::{
    fair_cursors::{FairCursors, paired_lane},
    floors::Floors,
    lane::Lane,
    payload_sizes::PayloadSizes,
};

/// Lanes of a claimer, and the claimer's progress in each lane.
#[derive(Default)]
pub(crate) struct LaneState {
    pub(super) lanes: HashMap<i64, Lane>,
    /// Transactional job types. A claim from `ClaimSource::Lanes` gives each of their jobs a separate lease.
    pub(super) transactional: HashSet<&'static str>,
    /// Floors shared by all claimers of a worker.
    pub(super) floors: Floors,
    /// Mean payload size in each lane's last claim, unless the payloads were small.
    sizes: PayloadSizes,
    /// Positions in fair lanes.
    pub(super) turns: FairCursors,
    /// Time at which each lane was last served, or first seen if the lane was never served.
    served: HashMap<i64, Instant>,
}

impl LaneState {
    /// Creates the state of another claimer, which shares the floors of this claimer.
    pub(crate) fn with_shared_floors(&self) -> Self {
        Self { floors: self.floors.clone(), transactional: self.transactional.clone(), ..Self::default() }
    }

    /// Replaces the lanes. Removes this claimer's state for lanes that are not in the new set, but keeps their shared floors.
    pub(crate) fn set<'a>(&mut self, lanes: impl Iterator<Item = &'a Lane>) {
        self.lanes = lanes.map(|lane| (lane.id, lane.clone())).collect();
        let known = &self.lanes;
        let is_known = |lane: i64| known.contains_key(&lane);
        self.served.retain(|lane, _| is_known(*lane));
        self.sizes.keep(is_known);
        self.turns.retain(is_known);
    }

    /// Removes all lanes that are not in `found`, together with their state.
    pub(super) fn keep(&mut self, found: &HashMap<i64, Lane>) {
        self.lanes.retain(|id, _| found.contains_key(id));
        self.floors.retain(|id| found.contains_key(id));
        self.served.retain(|id, _| found.contains_key(id));
        self.sizes.keep(|id| found.contains_key(&id));
        self.turns.retain(|id| found.contains_key(&id));
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = i64> {
        self.lanes.keys().copied()
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Lane> {
        self.lanes.get(&id)
    }

    pub(super) fn is_transactional(&self, lane: &Lane) -> bool {
        self.transactional.contains(lane.job_type)
    }

    /// Returns the floor of `lane`, which is the queue position at which claims start. Below the floor, the index contains dead entries,
    /// and occasionally jobs that were already below the floor when they were committed.
    pub(crate) fn floor(&self, lane: i64) -> i64 {
        self.floors.get(lane)
    }

    /// Forgets all floors. The next connection may reach another server, on which jobs may exist below the floors.
    pub(crate) fn forget_floors(&mut self) {
        self.floors.clear();
    }

    /// Raises the floors of the paired lanes of `lanes` to the highest claimed queue positions. `lanes` contains the fair lanes whose fair
    /// queues are empty. Only probes use the raised floors.
    pub(super) fn raise_empty(&mut self, lanes: impl Iterator<Item = i64>) {
        for lane in lanes {
            if let Some(highest) = self.turns.highest(lane) {
                self.floors.set([(paired_lane(lane), highest)]);
            }
        }
    }

    pub(crate) fn sizes(&self) -> &PayloadSizes {
        &self.sizes
    }

    pub(super) fn record_sizes(&mut self, sizes: impl Iterator<Item = (i64, usize)>) {
        self.sizes.record(sizes);
    }

    /// Returns whether at least the duration `aging` has passed since `lane` was last served.
    pub(crate) fn is_passed_over(&mut self, lane: i64, aging: Duration) -> bool {
        self.served.entry(lane).or_insert_with(Instant::now).elapsed() >= aging
    }

    /// Records the current time as the time at which `lanes` were last served.
    pub(crate) fn record_served(&mut self, lanes: impl Iterator<Item = i64>) {
        let now = Instant::now();
        self.served.extend(lanes.map(|lane| (lane, now)));
    }
}
