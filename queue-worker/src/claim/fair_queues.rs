//! Moves ready jobs of fair lanes into fair queues. Claims from fair lanes see only jobs in fair queues.

use std::time::{Duration, Instant};

use super::{claimers::notify_holding, poller::Poller};
use crate::lanes::move_to_fair_lanes;

/// Minimum interval between moves of jobs into fair queues while claims return jobs. The interval is short compared with the time that a
/// job waits for its turn in a fair queue.
const BUSY_INTERVAL: Duration = Duration::from_millis(20);

impl Poller {
    /// Moves ready jobs into fair queues. Must run before each probe, because a probe of fair lanes sees only jobs in fair queues. If a
    /// late scan is allowed now, also moves jobs below the floors.
    pub(super) async fn update_fair_queues(&mut self, is_busy: bool) -> sqlx::Result<()> {
        self.fair_queues.more = false;
        if !self.lanes.any_fair() {
            return Ok(());
        }
        let began = Instant::now();
        if is_busy && self.fair_queues.not_before.is_some_and(|at| began < at) {
            return Ok(());
        }
        let fair: Vec<i64> = self.lanes.open().filter(|lane| lane.fair).map(|lane| lane.id).collect();
        if fair.is_empty() {
            return Ok(());
        }
        let from_zero =
            if is_busy { self.fair_queues.late_scan.is_overdue() } else { true } && self.fair_queues.late_scan.is_allowed(began);
        if from_zero {
            self.fair_queues.late_scan.begin();
        }
        let moved = move_to_fair_lanes(self.link.get().await?, self.context.store, &self.lanes.track, &fair, from_zero).await;
        let moved = self.link.note(moved)?;
        if from_zero {
            self.fair_queues.late_scan.record_full(began.elapsed(), moved.jobs);
        }
        self.has_notified |= notify_holding(&self.lanes, &moved.lanes);
        self.fair_queues.more = moved.more;
        self.fair_queues.not_before = (!moved.more).then(|| began + BUSY_INTERVAL);
        Ok(())
    }
}
