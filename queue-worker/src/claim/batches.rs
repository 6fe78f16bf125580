//! Claims for handlers that take batches: claims of their own, for a slot has room for as many jobs as a batch, and what single jobs may be
//! claimed is counted in slots. Without such handlers none of this costs anything.

use std::{collections::HashSet, mem::swap, sync::Arc, time::Instant};

use uuid::Uuid;

use super::{
    feed::Feed,
    flight::{ClaimResult, Course},
    waiter::{FIRST, Kind},
};
use crate::lanes::{From, Lane, Request, order};

/// What two claims found together.
fn both(one: ClaimResult, other: ClaimResult) -> ClaimResult {
    match (one, other) {
        (ClaimResult::Full, _) | (_, ClaimResult::Full) => ClaimResult::Full,
        (ClaimResult::Saturated, other) | (other, ClaimResult::Saturated) => other,
        (ClaimResult::Jobs(some), ClaimResult::Jobs(others)) => ClaimResult::Jobs(some + others),
    }
}

impl Feed {
    /// Claims for every queue with room. Single jobs and those for batches take turns to go first.
    pub(super) async fn claim(&mut self, worker: Uuid) -> sqlx::Result<ClaimResult> {
        let queues = Arc::clone(&self.context.queues);
        let of_batches = |lane: &&Lane| queues.batch_of(lane.job_type).is_some();
        if !queues.takes_batches() || !self.lanes.free().any(|lane| of_batches(&lane)) {
            self.rescan_batches.end();
            self.batches.leave_all();
            self.found = self.claim_singles(worker).await?;
            return Ok(self.found);
        }
        if self.lanes.free().all(|lane| of_batches(&lane)) {
            self.rescan.end();
            self.singles.leave_all();
            self.found = self.claim_batches(worker).await?;
            return Ok(self.found);
        }
        let first = if self.batches_first { Some(self.claim_batches(worker).await?) } else { None };
        self.found = self.claim_singles(worker).await?;
        let batches = match first {
            Some(batches) => batches,
            None => self.claim_batches(worker).await?,
        };
        let found = both(self.found, batches);
        // Had nobody anything of it, it was nobody's turn.
        self.batches_first ^= !matches!(found, ClaimResult::Saturated | ClaimResult::Jobs(0));
        Ok(found)
    }

    /// One claim, and one below the floors if there is reason and time: what is found there is not told apart by who may run it, so when to look
    /// is known for these lanes by themselves.
    async fn claim_batches(&mut self, worker: Uuid) -> sqlx::Result<ClaimResult> {
        swap(&mut self.rescan, &mut self.rescan_batches);
        let found = self.claim_batches_now(worker).await;
        swap(&mut self.rescan, &mut self.rescan_batches);
        found
    }

    /// From lines first, if jobs of any such type stand in some.
    async fn claim_batches_now(&mut self, worker: Uuid) -> sqlx::Result<ClaimResult> {
        let queues = Arc::clone(&self.context.queues);
        if !self.lanes.free().any(|lane| lane.fair && queues.batch_of(lane.job_type).is_some()) {
            return self.claim_batches_of_lanes(worker).await;
        }
        let of_lines = self.claim_batches_from(worker, From::Lines).await?;
        Ok(match (of_lines, self.claim_batches_of_lanes(worker).await?) {
            // Lines wait for slots, and there is no other lane.
            (ClaimResult::Saturated, ClaimResult::Jobs(0)) => ClaimResult::Saturated,
            (of_lines, of_lanes) => both(of_lines, of_lanes),
        })
    }

    async fn claim_batches_of_lanes(&mut self, worker: Uuid) -> sqlx::Result<ClaimResult> {
        let from_zero = self.rescan.is_due();
        let found = self.claim_batches_from(worker, From::Lanes { from_zero }).await?;
        if let ClaimResult::Jobs(count) = found
            && self.rescan.owed
            && self.rescan.may(Instant::now())
        {
            return Ok(match self.claim_batches_from(worker, From::Lanes { from_zero: true }).await? {
                ClaimResult::Jobs(late) => ClaimResult::Jobs(count + late),
                // What came first left no room.
                ClaimResult::Saturated => found,
                ClaimResult::Full => ClaimResult::Full,
            });
        }
        Ok(found)
    }

    async fn claim_batches_from(&mut self, worker: Uuid, from: From) -> sqlx::Result<ClaimResult> {
        self.turn_batches = self.turn_batches.wrapping_add(1);
        let (of_lines, context) = (from == From::Lines, Arc::clone(&self.context));
        let lanes = order(self.lanes.free().filter(|lane| lane.fair == of_lines), self.turn_batches).into_iter();
        let lanes = lanes.filter(|lane| self.batches.may_hold(lane) && context.queues.batch_of(lane.job_type).is_some());
        let ids: Vec<i64> = lanes.map(|lane| lane.id).collect();
        let aged = self.aged(&ids);
        let lanes = ids.iter().filter_map(|id| self.lanes.track.get(*id));
        let lanes: Vec<(i32, &Lane)> =
            lanes.map(|lane| (if aged.contains(&lane.id) { FIRST } else { lane.priority.into() }, lane)).collect();
        let (mut shares, reserved) =
            self.batches.reserve_for(&context.queues, &lanes, |_| context.batch, Kind { takes_batches: true, in_turn: false });
        let of_batches = |lane: &&Lane| self.batches.may_hold(lane) && context.queues.batch_of(lane.job_type).is_some();
        let wanted: HashSet<&Arc<str>> = self.lanes.free().filter(of_batches).map(|lane| &lane.queue).collect();
        self.batches.keep(|queue| wanted.contains(queue));
        context.fit(&self.lanes.track, &mut shares);
        if shares.is_empty() {
            if reserved.values().any(|promised| promised.count > 0) {
                self.batches.leave_all();
            }
            return Ok(if reserved.is_empty() { ClaimResult::Jobs(0) } else { ClaimResult::Saturated });
        }
        context.let_age(&mut self.lanes.track, &mut shares);
        let asked = shares.iter().fold(0_usize, |sum, share| sum.saturating_add(share.most));
        let most = reserved.values().map(|promised| promised.count).sum::<usize>().min(asked).min(context.batch);
        if from == (From::Lanes { from_zero: true }) {
            self.rescan.begin();
        }
        let request = Request::new(worker, shares, most, from, &mut self.lanes.track, &context.held);
        let flight = self.send(request, reserved, Course { next: None, of_lines, of_batches: true }, false);
        let landed = self.land(flight).await;
        self.keep_singles();
        landed
    }

    /// What is looked for among many lanes is for single jobs: batches are claimed from all of theirs.
    pub(super) fn keep_singles(&mut self) {
        if self.context.queues.takes_batches() {
            let queues = Arc::clone(&self.context.queues);
            self.lanes.narrow(|job_type| queues.batch_of(job_type).is_none());
        }
    }
}
