//! Scans for late jobs, whose queue positions are below the floors of their lanes. Slow scans run in addition to the normal claims, on a
//! separate connection. A slow scan reads blocks of the table if this is faster than reading the index.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use uuid::Uuid;

use super::{claimer::Claimer, in_flight::SlotReservations};
use crate::{
    lanes::{BlockScan, ClaimReport, ClaimRequest, ClaimSource, LaneGroup, LaneQuota},
    run::{SlotReservation, Slots},
};

/// Maximum number of jobs per late scan.
const MAX_JOBS: usize = 10;

/// Returns the maximum number of jobs that a late scan claims from each lane of the queue with these `slots`. The maximum is zero if many
/// jobs are already waiting for slots. Otherwise, it is the number of free slots, clamped to the range from one to [`MAX_JOBS`]. A scan may
/// claim a job without a free slot, because newer jobs usually take every slot before a scan is due.
fn late_share(slots: &Slots) -> usize {
    if slots.has_few_queued() { slots.free().clamp(1, MAX_JOBS) } else { 0 }
}

impl Claimer {
    /// Returns whether slow late scans run in addition to the claims. Otherwise, the claims themselves scan below the floors.
    ///
    /// If jobs must start in order, scans do not run separately, because two concurrent statements could return jobs out of order. Claims
    /// under limits and claims from many lanes always scan below the floors themselves.
    pub(super) fn scans_separately(&self, group: &LaneGroup) -> bool {
        self.late_scan.is_slow() && !self.context.queues.keep_order() && !group.is_limited() && !group.are_many()
    }

    /// Returns when the next part of a separate late scan is due. If a claim is also due (`claims`), an overdue scan is due immediately,
    /// even if it is not pending. Otherwise, only a pending scan is due. Returns `None` if no scan is due, if a scan is already in flight,
    /// or if late scans do not run separately.
    pub(super) fn separate_scan_at(&self, group: &LaneGroup, claims: bool, now: Instant) -> Option<Instant> {
        if self.late_scan_in_flight || !self.scans_separately(group) {
            return None;
        }
        if claims && self.late_scan.is_overdue() {
            Some(now)
        } else {
            self.late_scan.is_pending().then(|| self.late_scan.pending_at().unwrap_or(now))
        }
    }

    /// Sends a late scan. The scan returns few jobs and reserves no slots, so that newer jobs still find free slots. If the scan returns
    /// the maximum number of jobs, the floor is lowered and the next claims find the remaining jobs.
    pub(super) fn send_late_scan(&mut self, worker: Uuid, group: &Arc<LaneGroup>) {
        let (mut shares, mut reserved) = (Vec::new(), SlotReservations::new());
        for lane in &group.lanes {
            let Some(slots) = self.context.queues.slots(&lane.queue) else { continue };
            let most = late_share(&slots);
            reserved.entry(Arc::clone(&lane.queue)).or_insert_with(|| SlotReservation::none(slots));
            if most > 0 {
                shares.push(LaneQuota { lane: lane.id, most });
            }
        }
        self.context.fit(&self.track, &mut shares);
        self.late_scan.begin();
        if shares.is_empty() {
            // Too many jobs are already waiting for slots, so the scan is postponed.
            self.late_scan.is_requested = true;
            if group.lanes.is_empty() {
                self.late_scan.clear();
            }
            return;
        }
        let most = shares.iter().map(|share| share.most).sum::<usize>().min(self.context.batch);
        let from = ClaimSource::Lanes { from_zero: true };
        let mut request = ClaimRequest::new(worker, shares, most, from, &mut self.track, &self.context.held);
        request.late(MAX_JOBS, self.late_scan.block_cursor(), &self.track);
        self.send(request, (group, Arc::new(reserved)), None, None, true);
    }

    /// Records the result of a late scan. If the scan returned the maximum number of jobs, in total or for some lane, another claim is due
    /// immediately.
    pub(super) fn record_late_scan(&mut self, report: ClaimReport, shares: &[LaneQuota], part: Option<BlockScan>) {
        let ClaimReport { count, most, served, took, .. } = report;
        let returned = |share: &LaneQuota| served.iter().filter(|lane| **lane == share.lane).count();
        let is_full = count >= most || (count > 0 && shares.iter().any(|share| returned(share) >= share.most));
        match part {
            Some(part) => self.late_scan.record_blocks(took, part, is_full),
            None => self.late_scan.record_full(took, count),
        }
        self.context.taken.fetch_add(count, Relaxed);
        self.context.record_served(&mut self.track, &[], false, served.into_iter());
        if is_full {
            self.waiter.forget_empty();
            self.timer.resume();
        }
    }
}
