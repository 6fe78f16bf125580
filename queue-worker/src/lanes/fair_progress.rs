//! Progress of a claim through fair lanes.

use std::collections::HashMap;

use super::{claim::ClaimRequest, lane_state::LaneState};

/// Jobs claimed from fair lanes, and the positions that the claim reached.
#[derive(Default)]
pub(crate) struct FairProgress {
    /// Lane, fair queue and queue position of each claimed job, in serving order.
    in_lines: Vec<(i64, i64, i64)>,
    /// Pairs of a fair lane and the fair queue after which the lane's next claim continues. Set only under keyed limits.
    reached: Vec<(i64, i64)>,
    /// Lanes whose fair queues were empty after the claim.
    empty: Vec<i64>,
}

impl ClaimRequest {
    /// Returns the progress of a claim in fair lanes. `had_room` is `false` if a limit or the maximum number of jobs stopped the claim.
    /// If `had_room` is `true`, the fair queues of a lane that returned fewer jobs than requested are empty.
    pub(super) fn progress(&self, in_lines: &[(i64, i64, i64)], reached: &[(i64, i64)], had_room: bool) -> FairProgress {
        let mut jobs: HashMap<i64, usize> = HashMap::new();
        for (lane, ..) in in_lines {
            *jobs.entry(*lane).or_default() += 1;
        }
        let requested = self.shares.iter().zip(&self.in_lines).filter(|(_, in_lines)| had_room && **in_lines).map(|(share, _)| share);
        let empty = requested.filter(|share| jobs.get(&share.lane).copied().unwrap_or(0) < share.most).map(|share| share.lane);
        FairProgress { in_lines: in_lines.to_vec(), reached: reached.to_vec(), empty: empty.collect() }
    }
}

impl FairProgress {
    pub(crate) fn apply(self, lanes: &mut LaneState) {
        for (lane, line, place) in self.in_lines {
            lanes.turns.claimed(lane, line, place);
        }
        lanes.raise_empty(self.empty.into_iter());
        for (lane, line) in self.reached {
            lanes.turns.advance(lane, line);
        }
    }
}
