//! A step of the claim loop: what became ready in fair lanes takes its place in the lines. Whoever claims from lines sees only what stands there.

use std::time::{Duration, Instant};

use super::{feed::Feed, flight::ClaimResult};
use crate::lanes::line_up;

/// While claims are full, this often; what comes back waits for its turn anyway.
const OFTEN: Duration = Duration::from_millis(20);

impl Feed {
    /// To be called before claims. From the floors on, and from anywhere as often as that costs little.
    pub(super) async fn line_up(&mut self) -> sqlx::Result<()> {
        self.lineup.more = false;
        if !self.lanes.any_fair() {
            return Ok(());
        }
        let began = Instant::now();
        let is_busy = self.found == ClaimResult::Full || self.traffic.is_dense();
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
        let link = self.links.any();
        let moved = line_up(link.get().await?, self.context.store, &self.lanes.track, &fair, from_zero).await;
        let (jobs, more) = link.note(moved)?;
        if from_zero {
            self.lineup.rescan.done(began.elapsed(), jobs);
        }
        self.lineup.more = more;
        self.lineup.not_before = (!more).then(|| began + OFTEN);
        Ok(())
    }
}
