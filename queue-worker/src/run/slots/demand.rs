//! How many jobs to claim for a queue, and the slots that are reserved for them until they have come.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use super::{Slots, lock};
use crate::lanes::Claimed;

impl Slots {
    /// How many jobs may run or wait to, as far as other stores leave it room.
    fn room(&self) -> usize {
        self.context.share.as_ref().map_or(self.concurrency, |share| share.most().min(self.concurrency))
    }

    /// How many jobs to claim now: the free slots, and a tenth of a second's worth in advance. None while that is still half full, so that
    /// fast jobs travel in large batches and slow ones are not hoarded. Of jobs that take turns only a tenth of that in advance: whoever comes next
    /// waits for what is queued here, whosever it is.
    pub(crate) fn demand(self: &Arc<Self>, most: usize, in_turn: bool) -> Promised {
        let ahead = lock(&self.pace).ahead(Instant::now(), self.finished.load(Relaxed)).min(4 * most);
        let ahead = if in_turn { ahead / 10 } else { ahead };
        let (room, mut jobs) = (self.room(), lock(&self.jobs));
        let (coming, free) = (jobs.queued.len() + jobs.promised, room.saturating_sub(jobs.slots()));
        let full = coming > ahead / 2 || coming + jobs.apart >= free + ahead;
        if full {
            // Whoever asked before may wait for the same.
            jobs.ring_at = Some(jobs.ring_at.map_or(ahead / 2, |few| few.max(ahead / 2)));
        }
        let count = if full { 0 } else { (free + ahead - coming - jobs.apart).min(most) };
        jobs.promised += count;
        drop(jobs);
        Promised { slots: Arc::clone(self), count, apart: false, of_batches: Vec::new() }
    }

    /// Whether no more jobs wait here for a slot than may in advance, so that one more hoards nothing.
    pub(crate) fn has_few_queued(&self) -> bool {
        let ahead = lock(&self.pace).ahead(Instant::now(), self.finished.load(Relaxed));
        lock(&self.jobs).queued.len() <= ahead
    }

    /// The same for a claim under limits, of up to `cap`: beside the others, so that neither finds the slots full of what the other is still
    /// asking for.
    pub(crate) fn demand_apart(self: &Arc<Self>, most: usize, cap: usize) -> Promised {
        let ahead = lock(&self.pace).ahead(Instant::now(), self.finished.load(Relaxed)).min(4 * most);
        let (room, mut jobs) = (self.room(), lock(&self.jobs));
        let waiting = jobs.queued.len() + jobs.gathering.batches();
        let (taken, free) = (waiting + jobs.promised + jobs.apart, room.saturating_sub(jobs.slots()));
        let count = (free + ahead).saturating_sub(taken).min(most).min(cap);
        if count == 0 {
            jobs.ring_at = jobs.ring_at.or(Some(ahead / 2));
        }
        jobs.apart += count;
        drop(jobs);
        Promised { slots: Arc::clone(self), count, apart: true, of_batches: Vec::new() }
    }

    /// How many jobs to claim now of each of these types, which stand with the most of a batch: as many as fill the free slots and the batches
    /// that are begun, and a tenth of a second's worth in advance, as [`Slots::demand`].
    pub(crate) fn demand_batches(self: &Arc<Self>, types: &[(&'static str, usize)], most: usize) -> Promised {
        let ahead = lock(&self.pace).ahead(Instant::now(), self.finished.load(Relaxed)).min(4 * most);
        let (room, mut jobs, mut of_batches) = (self.room(), lock(&self.jobs), Vec::new());
        // Each type is offered all that is free, for a lane that is empty takes nothing. What comes is no more than the most of them.
        let taken = jobs.slots() + jobs.queued.len() + jobs.promised + jobs.apart + jobs.gathering.batches();
        let open = room.saturating_sub(taken);
        for (job_type, batch) in types {
            let (held, fills) = jobs.gathering.held(job_type, *batch);
            let early = if held > ahead / 2 { 0 } else { ahead - held };
            let count = (open * batch + fills.max(early)).min(most);
            jobs.gathering.promise(job_type, *batch, count);
            of_batches.push((*job_type, count));
        }
        let count = of_batches.iter().map(|(_, count)| *count).max().unwrap_or(0);
        // Never taken back but by ringing: another claim that found no room may wait for it.
        jobs.gathering.rings |= count == 0;
        jobs.gathering.ring_at = (ahead > 0).then_some(ahead / 2).max(jobs.gathering.ring_at);
        drop(jobs);
        Promised { slots: Arc::clone(self), count, apart: false, of_batches }
    }
}

/// Slots that are reserved for the jobs of a claim in the air, until this is dropped.
pub(crate) struct Promised {
    pub(crate) slots: Arc<Slots>,
    /// How many jobs they are.
    pub(crate) count: usize,
    /// For a claim under limits.
    apart: bool,
    /// How many of each type whose handler takes batches.
    of_batches: Vec<(&'static str, usize)>,
}

impl Promised {
    /// The same without any slot reserved: what comes is queued beyond what there is.
    pub(crate) fn without_slots(self) -> Self {
        Self { slots: Arc::clone(&self.slots), count: 0, apart: self.apart, of_batches: Vec::new() }
    }

    /// How many of this type, whose handler takes batches.
    pub(crate) fn count_of(&self, job_type: &str) -> usize {
        self.of_batches.iter().find(|(of, _)| *of == job_type).map_or(0, |(_, count)| *count)
    }

    /// Hands over what the claim found.
    pub(crate) fn push(&self, claimed: Vec<Claimed>) {
        self.slots.push(claimed);
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        let mut jobs = lock(&self.slots.jobs);
        for (job_type, count) in &self.of_batches {
            jobs.gathering.unpromise(job_type, *count);
        }
        if self.apart {
            jobs.apart = jobs.apart.saturating_sub(self.count);
        } else if self.of_batches.is_empty() {
            jobs.promised = jobs.promised.saturating_sub(self.count);
        }
    }
}
