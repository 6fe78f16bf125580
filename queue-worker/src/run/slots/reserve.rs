//! Slot reservation for claims. A reservation limits the number of jobs that a claim may return. The claimer queue decides which claimer
//! is next.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use super::{Slots, claimer_queue::ClaimerHandle, lock};
use crate::lanes::LeasedJob;

/// Claimer's request for slots, with the number and kind of the expected jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRequest<'a> {
    /// Highest priority of the expected jobs.
    pub(crate) priority: i32,
    /// Maximum number of jobs for which slots are reserved.
    pub(crate) most: usize,
    /// Whether the jobs come from fair queues. If so, only a tenth of the usual number of jobs is prefetched, because later jobs with other
    /// keys must wait behind prefetched jobs.
    pub(crate) in_turn: bool,
    /// Job types whose handlers take batches, each with its maximum batch size. Empty for single jobs.
    pub(crate) batches: &'a [(&'static str, usize)],
}

impl Slots {
    /// Returns the maximum number of running and waiting jobs. The queue's concurrency is the upper bound. Other stores may leave fewer
    /// slots free.
    fn max_jobs(&self) -> usize {
        self.context.share.as_ref().map_or(self.concurrency, |share| share.max_jobs().min(self.concurrency))
    }

    /// Returns the maximum number of jobs to prefetch: the number of jobs that finish in 100 ms, but at most `4 * max`. Fast jobs are
    /// therefore claimed in large batches, and slow jobs are left to other workers.
    fn prefetch(&self, max: usize) -> usize {
        lock(&self.rate).prefetch(Instant::now(), self.finished.load(Relaxed)).min(4 * max)
    }

    /// Reserves slots for a claim's jobs if the claimer is first in the claimer queue.
    ///
    /// The reservation covers the free slots and the jobs to prefetch. While the number of queued and reserved jobs exceeds half of the
    /// prefetch limit, nothing is reserved for single jobs, and no jobs are prefetched for batches. A claimer without a reservation waits
    /// and is woken later. A claimer with a reservation moves behind all claimers of equal priority.
    pub(crate) fn reserve(self: &Arc<Self>, claimer: &ClaimerHandle, request: SlotRequest<'_>) -> SlotReservation {
        let prefetch = self.prefetch(request.most);
        let prefetch = if request.in_turn { prefetch / 10 } else { prefetch };
        let (max_jobs, mut jobs) = (self.max_jobs(), lock(&self.jobs));
        let is_first = jobs.claimers.enqueue(claimer, request.priority);
        let above = jobs.claimers.max_priority_except(claimer);
        let (mut count, mut by_type) = (0, Vec::new());
        let open = max_jobs.saturating_sub(jobs.slots() + jobs.queued.len() + jobs.reserved);
        if !is_first {
            jobs.claimers.wake_first();
        } else if request.batches.is_empty() {
            let (coming, free) = (jobs.queued.len() + jobs.reserved, max_jobs.saturating_sub(jobs.slots()));
            if coming > prefetch / 2 || coming >= free + prefetch {
                jobs.wake_at = Some(jobs.wake_at.map_or(prefetch / 2, |limit| limit.max(prefetch / 2)));
            } else {
                count = (free + prefetch - coming).min(request.most);
            }
        } else {
            // Each job type is offered all free slots, because the lanes of other types may be empty. The claim returns at most as many
            // jobs as the largest offer.
            let open = open.saturating_sub(jobs.batches.slots());
            for (job_type, batch_size) in request.batches {
                let (waiting, missing) = jobs.batches.count_of(job_type, *batch_size);
                let early = if waiting > prefetch / 2 { 0 } else { prefetch - waiting };
                let most = (open * batch_size + missing.max(early)).min(request.most);
                jobs.batches.reserve(job_type, *batch_size, most);
                by_type.push((*job_type, most));
            }
            count = by_type.iter().map(|(_, count)| *count).max().unwrap_or(0);
            if count == 0 {
                jobs.batches.add_waiting(claimer);
                jobs.wake_at = jobs.wake_at.or(Some(prefetch / 2));
            }
            jobs.batches.wake_at = (prefetch > 0).then_some(prefetch / 2).max(jobs.batches.wake_at);
            if count == 0 && open > 0 {
                // This claimer waits for space in the batch buffer, and does not need a free slot. Other claimers may use the free slots.
                jobs.claimers.remove(claimer);
                jobs.claimers.wake_first();
            }
        }
        if count > 0 {
            jobs.claimers.grant(claimer);
            if above.is_some() && open > count {
                jobs.claimers.wake_first();
            }
        }
        if by_type.is_empty() {
            jobs.reserved += count;
        }
        drop(jobs);
        SlotReservation {
            slots: Arc::clone(self),
            count,
            reserved: AtomicUsize::new(count),
            above: above.filter(|_| count > 0),
            withholds: false,
            by_type,
        }
    }

    /// Removes a claimer that no longer needs slots of this queue.
    pub(crate) fn leave(&self, claimer: &ClaimerHandle) {
        let mut jobs = lock(&self.jobs);
        jobs.claimers.remove(claimer);
        jobs.claimers.wake_first();
    }

    /// Returns whether the number of queued jobs is within the prefetch limit.
    pub(crate) fn has_few_queued(&self) -> bool {
        let prefetch = self.prefetch(usize::MAX / 4);
        lock(&self.jobs).queued.len() <= prefetch
    }
}

/// Slots reserved for a claim's jobs. Dropping the reservation releases the slots.
pub(crate) struct SlotReservation {
    pub(crate) slots: Arc<Slots>,
    /// Maximum number of jobs that the claim may return.
    pub(crate) count: usize,
    /// Number of jobs whose slots are still reserved.
    reserved: AtomicUsize,
    /// Highest priority among the queue's other claimers. Jobs of a lower priority must not be claimed before these claimers' jobs. `None`
    /// if there are no other claimers or nothing is reserved.
    pub(crate) above: Option<i32>,
    /// Whether the claim omits lanes because of `above`.
    pub(crate) withholds: bool,
    /// Number of reserved jobs for each job type whose handler takes batches.
    by_type: Vec<(&'static str, usize)>,
}

impl SlotReservation {
    /// Creates an empty reservation. Jobs pushed through the reservation are queued even if no slot is free.
    pub(crate) fn none(slots: Arc<Slots>) -> Self {
        Self { slots, count: 0, reserved: AtomicUsize::new(0), above: None, withholds: false, by_type: Vec::new() }
    }

    /// Returns the number of reserved jobs of a type. Returns zero for a type whose handler does not take batches.
    pub(crate) fn count_of(&self, job_type: &str) -> usize {
        self.by_type.iter().find(|(of, _)| *of == job_type).map_or(0, |(_, count)| *count)
    }

    /// Passes claimed jobs to the slots.
    pub(crate) fn push(&self, leased: Vec<LeasedJob>) {
        self.slots.push(leased);
    }

    /// Releases the reservation of a slow claim early. Jobs that the claim returns later are queued even if no slot is free.
    pub(crate) fn release(&self) {
        let reserved = self.reserved.swap(0, Relaxed);
        if reserved == 0 {
            return;
        }
        let mut jobs = lock(&self.slots.jobs);
        for (job_type, count) in &self.by_type {
            jobs.batches.release(job_type, *count);
        }
        if self.by_type.is_empty() {
            jobs.reserved = jobs.reserved.saturating_sub(reserved);
        }
        jobs.claimers.wake_first();
    }
}

impl Drop for SlotReservation {
    fn drop(&mut self) {
        self.release();
    }
}
