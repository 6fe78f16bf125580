//! Slots that are reserved for a claim: how many jobs it may bring, and who of those that claim for a queue is next.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use super::{Slots, line::Claimant, lock};
use crate::lanes::LeasedJob;

/// What a claimer asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<'a> {
    /// The highest priority of the jobs that it expects.
    pub(crate) priority: i32,
    /// How many jobs at most.
    pub(crate) most: usize,
    /// They take turns, so that only a tenth as many are claimed in advance: all that comes next waits for what is queued here.
    pub(crate) in_turn: bool,
    /// The types whose handlers take batches, each with the most jobs of one; empty for single jobs.
    pub(crate) batches: &'a [(&'static str, usize)],
}

impl Slots {
    /// How many jobs may run or wait to, as far as other stores leave it room.
    fn room(&self) -> usize {
        self.context.share.as_ref().map_or(self.concurrency, |share| share.most().min(self.concurrency))
    }

    /// How many jobs may wait for a slot: a tenth of a second's worth, so that fast jobs travel in large batches and slow ones are not hoarded.
    fn ahead(&self, most: usize) -> usize {
        lock(&self.pace).ahead(Instant::now(), self.finished.load(Relaxed)).min(4 * most)
    }

    /// Reserves slots for the jobs of a claim, if its claimer is the first in line: all that are free, and some jobs in advance, unless half of
    /// those wait already. Who is given none stands in the line, and is woken. Who is given some stands behind its equals until it leaves.
    pub(crate) fn reserve(self: &Arc<Self>, who: &Claimant, demand: Demand<'_>) -> Promised {
        let ahead = self.ahead(demand.most);
        let ahead = if demand.in_turn { ahead / 10 } else { ahead };
        let (room, mut jobs) = (self.room(), lock(&self.jobs));
        let is_first = jobs.line.stand(who, demand.priority);
        let above = jobs.line.best_other(who);
        let (mut count, mut of_batches) = (0, Vec::new());
        let open = room.saturating_sub(jobs.slots() + jobs.queued.len() + jobs.promised);
        if !is_first {
            jobs.line.wake_first();
        } else if demand.batches.is_empty() {
            let (coming, free) = (jobs.queued.len() + jobs.promised, room.saturating_sub(jobs.slots()));
            if coming > ahead / 2 || coming >= free + ahead {
                jobs.ring_at = Some(jobs.ring_at.map_or(ahead / 2, |few| few.max(ahead / 2)));
            } else {
                count = (free + ahead - coming).min(demand.most);
            }
        } else {
            // Each type is offered all that is free, for a lane that is empty takes nothing. What comes is no more than the most of them.
            let open = open.saturating_sub(jobs.gathering.batches());
            for (job_type, batch) in demand.batches {
                let (held, fills) = jobs.gathering.held(job_type, *batch);
                let early = if held > ahead / 2 { 0 } else { ahead - held };
                let most = (open * batch + fills.max(early)).min(demand.most);
                jobs.gathering.promise(job_type, *batch, most);
                of_batches.push((*job_type, most));
            }
            count = of_batches.iter().map(|(_, count)| *count).max().unwrap_or(0);
            if count == 0 {
                jobs.gathering.waits(who);
                jobs.ring_at = jobs.ring_at.or(Some(ahead / 2));
            }
            jobs.gathering.ring_at = (ahead > 0).then_some(ahead / 2).max(jobs.gathering.ring_at);
            if count == 0 && open > 0 {
                // It waits for a fuller batch to begin, not for a slot: others may have those.
                jobs.line.leave(who);
                jobs.line.wake_first();
            }
        }
        if count > 0 {
            jobs.line.served(who);
            if above.is_some() && open > count {
                jobs.line.wake_first();
            }
        }
        if of_batches.is_empty() {
            jobs.promised += count;
        }
        drop(jobs);
        Promised {
            slots: Arc::clone(self),
            count,
            held: AtomicUsize::new(count),
            above: above.filter(|_| count > 0),
            withholds: false,
            of_batches,
        }
    }

    /// It wants no more slots of this queue.
    pub(crate) fn leave(&self, who: &Claimant) {
        let mut jobs = lock(&self.jobs);
        jobs.line.leave(who);
        jobs.line.wake_first();
    }

    /// Whether no more jobs wait here for a slot than may in advance, so that one more hoards nothing.
    pub(crate) fn has_few_queued(&self) -> bool {
        let ahead = self.ahead(usize::MAX / 4);
        lock(&self.jobs).queued.len() <= ahead
    }
}

/// Slots that are reserved for the jobs of a claim, until this is dropped.
pub(crate) struct Promised {
    pub(crate) slots: Arc<Slots>,
    /// How many jobs they are.
    pub(crate) count: usize,
    /// How many of these are reserved still.
    held: AtomicUsize,
    /// The highest priority of others that wait for slots here: jobs of a lower one are not to go before theirs.
    pub(crate) above: Option<i32>,
    /// Some lanes were left out for that.
    pub(crate) withholds: bool,
    /// How many of each type whose handler takes batches.
    of_batches: Vec<(&'static str, usize)>,
}

impl Promised {
    /// None are reserved here: what comes is queued beyond what there is.
    pub(crate) fn none(slots: Arc<Slots>) -> Self {
        Self { slots, count: 0, held: AtomicUsize::new(0), above: None, withholds: false, of_batches: Vec::new() }
    }

    /// How many of this type, whose handler takes batches.
    pub(crate) fn count_of(&self, job_type: &str) -> usize {
        self.of_batches.iter().find(|(of, _)| *of == job_type).map_or(0, |(_, count)| *count)
    }

    /// Hands over what the claim found.
    pub(crate) fn push(&self, claimed: Vec<LeasedJob>) {
        self.slots.push(claimed);
    }

    /// Leaves the slots to others: the claim takes long. What it brings is queued beyond what there is.
    pub(crate) fn release(&self) {
        let held = self.held.swap(0, Relaxed);
        if held == 0 {
            return;
        }
        let mut jobs = lock(&self.slots.jobs);
        for (job_type, count) in &self.of_batches {
            jobs.gathering.unpromise(job_type, *count);
        }
        if self.of_batches.is_empty() {
            jobs.promised = jobs.promised.saturating_sub(held);
        }
        jobs.line.wake_first();
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        self.release();
    }
}
