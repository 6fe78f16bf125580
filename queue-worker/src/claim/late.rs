//! Looks below the floors that take long: beside the claims, on a connection of their own, and by blocks of the table where that is quicker. Nobody
//! waits for them, and they are no reason to claim: what they find they bring.

use std::time::Instant;

use uuid::Uuid;

use super::{
    feed::{Feed, LOOK},
    flight::ClaimResult,
};
use crate::{
    lanes::{Claimed, Share},
    run::Slots,
};

/// The most jobs of one.
const FEW: usize = 10;

/// How many jobs a look below the floors that goes beside claims may bring of a lane of this queue: as many as there are slots for, and one more than
/// that, unless too many wait already: a slot that is free again has gone to a newer job by the time a look is due.
pub(super) fn late_share(slots: &Slots) -> usize {
    if slots.has_few_queued() { slots.free().clamp(1, FEW) } else { 0 }
}

/// Whether it brought as much of some lane as it might, so that this may have more.
pub(super) fn fills_a_lane(claimed: &[Claimed], shares: &[Share]) -> bool {
    let brought = |share: &Share| claimed.iter().filter(|job| job.job.lane == share.lane).count();
    !claimed.is_empty() && shares.iter().any(|share| brought(share) >= share.most)
}

impl Feed {
    /// Whether to look below the floors beside other claims, since it takes long. Not where the order of jobs is to be seen: two claims would mix it.
    /// Nor of many lanes, from which every claim takes whatever lies lowest.
    pub(super) fn looks_aside(&self) -> bool {
        self.rescan.is_slow() && !self.context.queues.keep_order() && !self.lanes.are_many()
    }

    /// Whether a claim owes a look below the floors.
    pub(super) fn owes(&self) -> bool {
        self.rescan.owes() && !self.looks_aside()
    }

    /// There is nothing to ask: some lanes wait, or those with free slots are none. Where there is no lane at all, nothing lies below a floor.
    pub(super) fn owe_later(&mut self, any_waits: bool, is_none: bool, was_late: bool) {
        if is_none && !any_waits {
            self.rescan.end();
        } else if is_none || was_late && self.looks_aside() {
            self.rescan.put_off(LOOK);
        }
    }

    /// When the next part of one is due, if any is owed and none is on its way.
    pub(super) fn late_due(&self) -> Option<Instant> {
        self.rescan.owed_at().filter(|_| self.late.is_none() && self.looks_aside() && !self.trial.is_quiet())
    }

    /// Lands a part that is over, and sends the next one once it is due; returns whether claims are to find what that has left.
    pub(super) async fn mind_late(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        let mut more = false;
        if let Some(late) = self.late.take_if(|late| late.is_over()) {
            more = self.land(late).await? == ClaimResult::Full;
        }
        let now = Instant::now();
        if self.late_due().is_some_and(|due| now >= due) {
            self.look_for_late_ones(worker).await?;
        }
        Ok(more)
    }

    /// Sends a claim below the floors on its way, which nudges when it is over. It takes a few jobs and reserves no slots for them, lest those that
    /// come meanwhile find none; where it finds as many as it may, the floor falls, and the next claims find the rest.
    pub(super) async fn look_for_late_ones(&mut self, worker: Uuid) -> sqlx::Result<()> {
        if self.late.is_none()
            && let Ok((mut request, reserved, course)) = self.prepare(worker, None, true).await?
        {
            request.late(FEW, self.rescan.sweep(), &self.lanes.track);
            self.late = Some(self.send(request, reserved, course, true));
        }
        Ok(())
    }
}
