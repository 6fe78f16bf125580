//! Totals of a claim by lane: number of jobs, payload size, and lowest queue position.

use std::{collections::HashMap, sync::Arc};

use super::{lane::Lane, lane_state::LaneState};

/// Totals of a claim's jobs in one lane.
pub(super) struct LaneTotals {
    pub(super) lane: i64,
    pub(super) lowest: i64,
    pub(super) jobs: usize,
    pub(super) bytes: usize,
    pub(super) queue: Arc<str>,
    pub(super) job_type: &'static str,
    pub(super) version: u16,
    /// Position of the lane in the claim request.
    pub(super) rank: usize,
}

impl LaneTotals {
    pub(super) fn new(id: i64, lowest: i64, lane: Option<&Lane>, rank: Option<&usize>) -> Self {
        Self {
            lane: id,
            lowest,
            jobs: 0,
            bytes: 0,
            queue: lane.map(|lane| Arc::clone(&lane.queue)).unwrap_or_default(),
            job_type: lane.map_or("", |lane| lane.job_type),
            version: lane.map_or(1, |lane| lane.version),
            rank: rank.copied().unwrap_or(usize::MAX),
        }
    }
}

/// Totals of a claim by lane. Rows arrive grouped by lane, so the position of the last lane is cached.
#[derive(Default)]
pub(super) struct TotalsByLane {
    pub(super) all: Vec<LaneTotals>,
    pub(super) places: HashMap<i64, usize>,
    pub(super) last: usize,
}

impl TotalsByLane {
    pub(super) fn of(&mut self, lane: i64, fresh: impl FnOnce() -> LaneTotals) -> &mut LaneTotals {
        if self.all.get(self.last).is_none_or(|of| of.lane != lane) {
            let Self { all, places, .. } = self;
            self.last = *places.entry(lane).or_insert_with(|| {
                all.push(fresh());
                all.len() - 1
            });
        }
        &mut self.all[self.last]
    }

    /// Records the mean payload size of each lane. If `begins_there` is `true`, also sets the floor of each lane to the lowest queue
    /// position of the claim's jobs in the lane. Lanes whose jobs came from fair queues get no floor.
    pub(super) fn record(self, lanes: &mut LaneState, fair_jobs: &[(i64, i64, i64)], begins_there: bool) {
        lanes.record_sizes(self.all.iter().map(|of| (of.lane, of.bytes / of.jobs)));
        let known = |lane: i64| fair_jobs.iter().any(|(other, ..)| *other == lane);
        if begins_there {
            lanes.floors.set(self.all.into_iter().filter(|of| !known(of.lane)).map(|of| (of.lane, of.lowest)));
        }
    }
}
