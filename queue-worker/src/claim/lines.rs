//! A step of the scout: what became ready in fair lanes takes its place in the lines. A claim from lines sees only what stands there.

use std::time::{Duration, Instant};

use super::{claimers::tell_holding, scout::Scout};
use crate::lanes::line_up;

/// While claims bring jobs, this often; what comes back waits for its turn anyway.
const OFTEN: Duration = Duration::from_millis(20);

impl Scout {
    /// To be called before looks, which see what stands in lines. From the floors on, and from anywhere as often as that costs little.
    pub(super) async fn line_up(&mut self, is_busy: bool) -> sqlx::Result<()> {
        self.lineup.more = false;
        if !self.lanes.any_fair() {
            return Ok(());
        }
        let began = Instant::now();
        if is_busy && self.lineup.not_before.is_some_and(|at| began < at) {
            return Ok(());
        }
        let fair: Vec<i64> = self.lanes.open().filter(|lane| lane.fair).map(|lane| lane.id).collect();
        if fair.is_empty() {
            return Ok(());
        }
        let from_zero = if is_busy { self.lineup.rescan.is_due() } else { true } && self.lineup.rescan.may(began);
        if from_zero {
            self.lineup.rescan.begin();
        }
        let moved = line_up(self.link.get().await?, self.context.store, &self.lanes.track, &fair, from_zero).await;
        let moved = self.link.note(moved)?;
        if from_zero {
            self.lineup.rescan.done(began.elapsed(), moved.jobs);
        }
        self.has_told |= tell_holding(&self.lanes, &moved.lanes);
        self.lineup.more = moved.more;
        self.lineup.not_before = (!moved.more).then(|| began + OFTEN);
        Ok(())
    }
}
