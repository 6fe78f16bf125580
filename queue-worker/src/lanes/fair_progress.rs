//! Progress of a claim through fair lanes.

use std::collections::HashMap;

use super::{claim::ClaimRequest, lane_state::LaneState};

/// Jobs claimed from fair lanes, and the positions that the claim reached.
#[derive(Default)]
pub(crate) struct FairProgress {
    /// Lane, fair queue and queue position of each claimed job, in serving order.
    fair_jobs: Vec<(i64, i64, i64)>,
    /// Pairs of a fair lane and the fair queue after which the lane's next claim continues. Empty without keyed limits.
    reached: Vec<(i64, i64)>,
    /// Lanes whose fair queues were empty after the claim.
    empty: Vec<i64>,
}

impl ClaimRequest {
    /// Returns the progress of a claim in fair lanes. `had_room` is `false` if a limit or the maximum number of jobs stopped the claim.
    /// If `had_room` is `true`, the fair queues of a lane that returned fewer jobs than requested are empty.
    pub(super) fn progress(&self, fair_jobs: &[(i64, i64, i64)], reached: &[(i64, i64)], had_room: bool) -> FairProgress {
        let mut jobs: HashMap<i64, usize> = HashMap::new();
        for (lane, ..) in fair_jobs {
            *jobs.entry(*lane).or_default() += 1;
        }
        let requested = self.shares.iter().zip(&self.is_fair).filter(|(_, is_fair)| had_room && **is_fair).map(|(share, _)| share);
        let empty = requested.filter(|share| jobs.get(&share.lane).copied().unwrap_or(0) < share.most).map(|share| share.lane);
        FairProgress { fair_jobs: fair_jobs.to_vec(), reached: reached.to_vec(), empty: empty.collect() }
    }
}

impl FairProgress {
    pub(crate) fn apply(self, lanes: &mut LaneState) {
        for (lane, fair_id, place) in self.fair_jobs {
            lanes.turns.claimed(lane, fair_id, place);
        }
        lanes.raise_empty(self.empty.into_iter());
        for (lane, fair_id) in self.reached {
            lanes.turns.advance(lane, fair_id);
        }
    }
}
