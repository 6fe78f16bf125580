//! Looks below the floors that take long: beside the claims, on a connection of their own, and by blocks of the table where that is quicker. Nobody
//! waits for them, and they are no reason to claim: what they find they bring.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use uuid::Uuid;

use super::{claimer::Claimer, flight::Reserved};
use crate::{
    lanes::{From, Group, Request, Said, Share, Swept},
    run::{Promised, Slots},
};

/// The most jobs of one.
const FEW: usize = 10;

/// How many jobs a look below the floors that goes beside claims may bring of a lane of this queue: as many as there are slots for, and one more than
/// that, unless too many wait already: a slot that is free again has gone to a newer job by the time a look is due.
fn late_share(slots: &Slots) -> usize {
    if slots.has_few_queued() { slots.free().clamp(1, FEW) } else { 0 }
}

impl Claimer {
    /// Whether to look below the floors beside other claims, since it takes long. Not where the order of jobs is to be seen: two claims would mix it.
    /// Nor of many lanes, from which every claim takes whatever lies lowest; nor under limits.
    pub(super) fn looks_aside(&self, group: &Group) -> bool {
        self.rescan.is_slow() && !self.context.queues.keep_order() && !group.is_limited() && !group.are_many()
    }

    /// When the next part of such a look is due: while claims are, now and then, and else if it is owed.
    pub(super) fn late_at(&self, group: &Group, claims: bool, now: Instant) -> Option<Instant> {
        if self.looks_late || !self.looks_aside(group) {
            return None;
        }
        if claims && self.rescan.is_due() { Some(now) } else { self.rescan.owes().then(|| self.rescan.owed_at().unwrap_or(now)) }
    }

    /// Sends a claim below the floors on its way. It takes a few jobs and reserves no slots, so that newer jobs still find some. If it
    /// finds as many as it may, the floor falls, and the next claims find the rest.
    pub(super) fn look_for_late_ones(&mut self, worker: Uuid, group: &Arc<Group>) {
        let (mut shares, mut reserved) = (Vec::new(), Reserved::new());
        for lane in &group.lanes {
            let Some(slots) = self.context.queues.slots(&lane.queue) else { continue };
            let most = late_share(&slots);
            reserved.entry(Arc::clone(&lane.queue)).or_insert_with(|| Promised::none(slots));
            if most > 0 {
                shares.push(Share { lane: lane.id, most });
            }
        }
        self.context.fit(&self.track, &mut shares);
        self.rescan.begin();
        if shares.is_empty() {
            // Too many wait already: later.
            self.rescan.owed = true;
            if group.lanes.is_empty() {
                self.rescan.end();
            }
            return;
        }
        let most = shares.iter().map(|share| share.most).sum::<usize>().min(self.context.batch);
        let from = From::Lanes { from_zero: true };
        let mut request = Request::new(worker, shares, most, from, &mut self.track, &self.context.held);
        request.late(FEW, self.rescan.sweep(), &self.track);
        self.send(request, (group, Arc::new(reserved)), None, None, true);
    }

    /// One is over. Where it brought as much of some lane as it might, that may have more, which the next claim finds.
    pub(super) fn note_late(&mut self, said: Said, shares: &[Share], part: Option<Swept>) {
        let Said { count, most, served, took, .. } = said;
        let brought = |share: &Share| served.iter().filter(|lane| **lane == share.lane).count();
        let is_full = count >= most || (count > 0 && shares.iter().any(|share| brought(share) >= share.most));
        match part {
            Some(part) => self.rescan.did(took, part, is_full),
            None => self.rescan.done(took, count),
        }
        self.context.taken.fetch_add(count, Relaxed);
        self.context.note_served(&mut self.track, &[], false, served.into_iter());
        if is_full {
            self.waiter.look_anew();
            self.pacing.go_on();
        }
    }
}
