//! Claims for handlers that take batches: claims of their own, for a slot has room for as many jobs as a batch, and what single jobs may be
//! claimed is counted in slots. Without such handlers none of this costs anything.

use std::{collections::HashMap, mem::swap, time::Instant};

use uuid::Uuid;

use super::{
    feed::Feed,
    flight::{ClaimResult, Course, Reserved},
};
use crate::lanes::{From, Lane, Request, Share, order};

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
        self.limits.free.begin();
        let found = self.claim_both(worker).await?;
        self.limits.had_chance();
        Ok(found)
    }

    async fn claim_both(&mut self, worker: Uuid) -> sqlx::Result<ClaimResult> {
        let queues = std::sync::Arc::clone(&self.queues);
        let of_batches = |lane: &&Lane| queues.batch_of(lane.job_type).is_some();
        if !queues.takes_batches() || !self.lanes.free().any(|lane| of_batches(&lane)) {
            self.rescan_batches.end();
            self.found = self.claim_singles(worker).await?;
            return Ok(self.found);
        }
        if self.lanes.free().all(|lane| of_batches(&lane)) {
            self.rescan.end();
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
        let queues = std::sync::Arc::clone(&self.queues);
        if !self.lanes.free().any(|lane| lane.fair && queues.batch_of(lane.job_type).is_some()) {
            return self.claim_batches_of_lanes(worker).await;
        }
        let of_lines = self.claim_batches_from(worker, From::Lines).await?;
        Ok(both(of_lines, self.claim_batches_of_lanes(worker).await?))
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
        let of_lines = from == From::Lines;
        let lanes = order(self.lanes.free().filter(|lane| lane.fair == of_lines && !self.limits.free.waits(lane)), self.turn_batches);
        let (mut shares, reserved) = self.demand_batches(lanes, self.batch);
        self.note_unasked(&reserved);
        self.fit(&mut shares);
        if shares.is_empty() {
            return Ok(ClaimResult::Saturated);
        }
        self.let_age(&mut shares);
        let asked = shares.iter().fold(0_usize, |sum, share| sum.saturating_add(share.most));
        let most = reserved.values().map(|promised| promised.count).sum::<usize>().min(asked).min(self.batch);
        if from == (From::Lanes { from_zero: true }) {
            self.rescan.begin();
        }
        let request = Request::new(worker, shares, most, from, &mut self.lanes, &self.held);
        let flight = self.send(request, reserved, Course { next: None, of_lines: from == From::Lines }, false);
        let landed = self.land(flight).await;
        self.keep_singles();
        landed
    }

    /// What is looked for among many lanes is for single jobs: batches are claimed from all of theirs.
    pub(super) fn keep_singles(&mut self) {
        if self.queues.takes_batches() {
            let queues = std::sync::Arc::clone(&self.queues);
            self.lanes.narrow(|job_type| queues.batch_of(job_type).is_none());
        }
    }

    /// How many jobs to claim of each of these lanes whose handlers take batches, and the slots that are reserved for them.
    pub(super) fn demand_batches(&self, offered: Vec<&Lane>, most: usize) -> (Vec<Share>, Reserved) {
        let mut lanes = Vec::new();
        let mut types: HashMap<&str, Vec<(&'static str, usize)>> = HashMap::new();
        for lane in offered {
            let Some(of) = self.queues.batch_of(lane.job_type) else { continue };
            lanes.push((lane, of.0));
            let known = types.entry(&lane.queue).or_default();
            if !known.contains(&of) {
                known.push(of);
            }
        }
        let slots = types.iter().filter_map(|(queue, types)| Some((*queue, self.queues.slots(queue)?.demand_batches(types, most))));
        let reserved: Reserved = slots.map(|(queue, promised)| (queue.into(), promised)).collect();
        let share = |(lane, job_type): (&Lane, &'static str)| {
            let most = reserved.get(&*lane.queue)?.count_of(job_type);
            (most > 0).then_some(Share { lane: lane.id, most })
        };
        let shares = lanes.into_iter().filter_map(share).collect();
        (shares, reserved)
    }
}
