//! Progress of a claim through fair lanes.

use std::collections::HashMap;

use super::{claim::ClaimRequest, lane_state::LaneState};

/// Claimed jobs and reached positions of a claim in fair lanes.
#[derive(Default)]
pub(crate) struct FairProgress {
    /// Lane, fair queue and place of each claimed job, in order of turns.
    in_lines: Vec<(i64, i64, i64)>,
    /// Fair queue after which each lane continues. Reported only by claims under keyed limits.
    reached: Vec<(i64, i64)>,
    /// Lanes whose fair queues were empty after the claim.
    empty: Vec<i64>,
}

impl ClaimRequest {
    /// Returns the progress of a claim. If a lane returned fewer jobs than requested, the lane's fair queues were empty, and jobs that
    /// arrive later have higher places.
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
