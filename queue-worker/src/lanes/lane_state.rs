//! What a claimer knows about its lanes. Pure: no database access.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use super::{
    fair_cursors::{FairCursors, twin_of},
    floors::Floors,
    lane::Lane,
    payload_sizes::PayloadSizes,
};

/// The lanes of a claimer, and its progress in each.
#[derive(Default)]
pub(crate) struct LaneState {
    pub(super) known: HashMap<i64, Lane>,
    /// Types with a lease per job.
    pub(super) transactional: HashSet<&'static str>,
    /// Shared by all claimers of a worker.
    pub(super) floors: Floors,
    /// Payload sizes in each lane's last claim, unless small.
    sizes: PayloadSizes,
    /// Position in each fair lane.
    pub(super) turns: FairCursors,
    /// When each lane was served last, or first seen.
    served: HashMap<i64, Instant>,
}

impl LaneState {
    /// Creates the state of another claimer, which shares the floors.
    pub(crate) fn with_shared_floors(&self) -> Self {
        Self { floors: self.floors.clone(), transactional: self.transactional.clone(), ..Self::default() }
    }

    /// Replaces the lanes.
    pub(crate) fn set<'a>(&mut self, lanes: impl Iterator<Item = &'a Lane>) {
        self.known = lanes.map(|lane| (lane.id, lane.clone())).collect();
        let known = &self.known;
        let is_known = |lane: i64| known.contains_key(&lane);
        self.served.retain(|lane, _| is_known(*lane));
        self.sizes.keep(is_known);
        self.turns.retain(is_known);
    }

    /// Forgets all lanes but these.
    pub(super) fn keep(&mut self, found: &HashMap<i64, Lane>) {
        self.known.retain(|id, _| found.contains_key(id));
        self.floors.retain(|id| found.contains_key(id));
        self.served.retain(|id, _| found.contains_key(id));
        self.sizes.keep(|id| found.contains_key(&id));
        self.turns.retain(|id| found.contains_key(&id));
    }

    /// Returns the ids of all lanes.
    pub(crate) fn ids(&self) -> impl Iterator<Item = i64> {
        self.known.keys().copied()
    }

    /// Returns the lane with this id.
    pub(crate) fn get(&self, id: i64) -> Option<&Lane> {
        self.known.get(&id)
    }

    pub(super) fn is_transactional(&self, lane: &Lane) -> bool {
        self.transactional.contains(lane.job_type)
    }

    /// Returns the lowest place of this lane's last claim. Below it are dead index entries, and occasionally a job whose transaction committed late.
    pub(crate) fn floor(&self, lane: i64) -> i64 {
        self.floors.get(lane)
    }

    /// Forgets all floors, as the next connection may reach another server.
    pub(crate) fn forget_floors(&mut self) {
        self.floors.clear();
    }

    /// Raises the floors of lanes whose fair queues are empty. Only probes use these floors.
    pub(super) fn raise_empty(&mut self, lanes: impl Iterator<Item = i64>) {
        for lane in lanes {
            if let Some(highest) = self.turns.highest(lane) {
                self.floors.raise([(twin_of(lane), highest)]);
            }
        }
    }

    /// Returns payload sizes by lane.
    pub(crate) fn sizes(&self) -> &PayloadSizes {
        &self.sizes
    }

    /// Records payload sizes of these lanes.
    pub(super) fn record_sizes(&mut self, sizes: impl Iterator<Item = (i64, usize)>) {
        self.sizes.record(sizes);
    }

    /// Whether this lane has waited longer than the aging limit.
    pub(crate) fn is_passed_over(&mut self, lane: i64, aging: Duration) -> bool {
        self.served.entry(lane).or_insert_with(Instant::now).elapsed() >= aging
    }

    /// Records that these lanes were served.
    pub(crate) fn record_served(&mut self, lanes: impl Iterator<Item = i64>) {
        let now = Instant::now();
        self.served.extend(lanes.map(|lane| (lane, now)));
    }
}
