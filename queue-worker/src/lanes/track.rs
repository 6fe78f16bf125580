//! Some lanes, and how far one claimer has come in each. Does not touch the database.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use super::{
    floors::Floors,
    lane::Lane,
    sizes::Sizes,
    turns::{Turns, twin_of},
};

/// The lanes of a claimer.
#[derive(Default)]
pub(crate) struct Track {
    pub(super) known: HashMap<i64, Lane>,
    /// The types of which each job has a lease of its own.
    pub(super) transactional: HashSet<&'static str>,
    /// All claimers of a worker have these in common.
    pub(super) floors: Floors,
    /// How many bytes a payload had in each lane's last claim, of those that are not small.
    sizes: Sizes,
    /// Whose turn it is in each fair lane.
    pub(super) turns: Turns,
    /// When each lane last had its turn, or was first seen.
    served: HashMap<i64, Instant>,
}

impl Track {
    /// Of another claimer, with the same floors.
    pub(crate) fn beside(&self) -> Self {
        Self { floors: self.floors.clone(), transactional: self.transactional.clone(), ..Self::default() }
    }

    /// From now on these are the lanes.
    pub(crate) fn set<'a>(&mut self, lanes: impl Iterator<Item = &'a Lane>) {
        self.known = lanes.map(|lane| (lane.id, lane.clone())).collect();
        let known = &self.known;
        let is_known = |lane: i64| known.contains_key(&lane);
        self.served.retain(|lane, _| is_known(*lane));
        self.sizes.keep(is_known);
        self.turns.retain(is_known);
    }

    /// Forgets those that are not among these.
    pub(super) fn keep(&mut self, found: &HashMap<i64, Lane>) {
        self.known.retain(|id, _| found.contains_key(id));
        self.floors.retain(|id| found.contains_key(id));
        self.served.retain(|id, _| found.contains_key(id));
        self.sizes.keep(|id| found.contains_key(&id));
        self.turns.retain(|id| found.contains_key(&id));
    }

    /// Their ids.
    pub(crate) fn ids(&self) -> impl Iterator<Item = i64> {
        self.known.keys().copied()
    }

    /// The lane of this id.
    pub(crate) fn get(&self, id: i64) -> Option<&Lane> {
        self.known.get(&id)
    }

    pub(super) fn is_transactional(&self, lane: &Lane) -> bool {
        self.transactional.contains(lane.job_type)
    }

    /// The lowest place of this lane's last claim: below it are dead index entries, and now and then a job whose transaction committed late.
    pub(crate) fn floor(&self, lane: i64) -> i64 {
        self.floors.get(lane)
    }

    /// Forgets all floors, because the next server may be another one.
    pub(crate) fn forget_floors(&mut self) {
        self.floors.clear();
    }

    /// The lines of these lanes were found empty: what comes is above all that was claimed of them. It is for those who glance; a claim goes by lines.
    pub(super) fn rest(&mut self, lanes: impl Iterator<Item = i64>) {
        for lane in lanes {
            if let Some(highest) = self.turns.highest(lane) {
                self.floors.raise([(twin_of(lane), highest)]);
            }
        }
    }

    /// How large payloads are.
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// How many bytes the payloads of these lanes have.
    pub(super) fn note_sizes(&mut self, sizes: impl Iterator<Item = (i64, usize)>) {
        self.sizes.note(sizes);
    }

    /// Whether better lanes have kept this one waiting for this long.
    pub(crate) fn is_passed_over(&mut self, lane: i64, aging: Duration) -> bool {
        self.served.entry(lane).or_insert_with(Instant::now).elapsed() >= aging
    }

    /// These lanes had their turn.
    pub(crate) fn served(&mut self, lanes: impl Iterator<Item = i64>) {
        let now = Instant::now();
        self.served.extend(lanes.map(|lane| (lane, now)));
    }
}
