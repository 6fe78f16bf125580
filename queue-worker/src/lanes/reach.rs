//! How far the lines of fair lanes have come by a claim.

use std::collections::HashMap;

use super::{claim::Request, track::Track};

/// How far the lines of each lane have come by a claim.
#[derive(Default)]
pub(crate) struct Reach {
    /// The plain lane, the line and the place in it of each job that stood in one, in the order of their turns.
    in_lines: Vec<(i64, i64, i64)>,
    /// After which line each lane goes on, if a claim under limits by key says so.
    reached: Vec<(i64, i64)>,
    /// The lanes whose lines are empty now, as far as this claim could see.
    rest: Vec<i64>,
}

impl Request {
    /// How far each lane has come. If there was room for more, what stands in the lines of a lane that brought less than it was asked for was not
    /// there yet: it has a higher place than all that was.
    pub(super) fn reach(&self, in_lines: &[(i64, i64, i64)], reached: &[(i64, i64)], had_room: bool) -> Reach {
        let mut jobs: HashMap<i64, usize> = HashMap::new();
        for (lane, ..) in in_lines {
            *jobs.entry(*lane).or_default() += 1;
        }
        let asked = self.shares.iter().zip(&self.in_lines).filter(|(_, in_lines)| had_room && **in_lines).map(|(share, _)| share);
        let rest = asked.filter(|share| jobs.get(&share.lane).copied().unwrap_or(0) < share.most).map(|share| share.lane);
        Reach { in_lines: in_lines.to_vec(), reached: reached.to_vec(), rest: rest.collect() }
    }
}

impl Reach {
    pub(crate) fn note(self, lanes: &mut Track) {
        for (lane, line, place) in self.in_lines {
            lanes.turns.come(lane, line, place);
        }
        lanes.rest(self.rest.into_iter());
        for (lane, line) in self.reached {
            lanes.turns.reach(lane, line);
        }
    }
}
