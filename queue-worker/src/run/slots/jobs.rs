//! Jobs that wait for a queue's slots, and jobs that run in these slots.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use super::{batch_buffer::BatchBuffer, claimer_queue::ClaimerQueue};
use crate::{lanes::LeasedJob, run::running::RunningJob};

/// Waiting and running jobs of one queue.
#[derive(Default)]
pub(super) struct SlotJobs {
    pub(super) queued: VecDeque<Arc<LeasedJob>>,
    /// Jobs that are waiting for a batch.
    pub(super) batches: BatchBuffer,
    /// Number of jobs for which in-flight claims have reserved a slot or a position in `queued`.
    pub(super) reserved: usize,
    /// Claimers that are waiting for slots.
    pub(super) claimers: ClaimerQueue,
    /// Jobs whose rate permits have expired, to be released.
    pub(super) late: Vec<Arc<LeasedJob>>,
    /// Running job of each slot, if any. For a batch, this is the batch's first job. Indexed by slot rather than by job id, because a job
    /// that was inserted twice into the store may run in two slots at once. Both verdicts are then sent.
    pub(super) running: Vec<Option<RunningJob>>,
    /// Jobs of each slot's batch, without the first job.
    pub(super) batch_rest: HashMap<usize, Vec<RunningJob>>,
    /// Slots without a task.
    pub(super) vacant: Vec<usize>,
    /// Number of queued jobs at or below which the first claimer is woken. Set after the first claimer has found no free slot.
    pub(super) wake_at: Option<usize>,
}

impl SlotJobs {
    /// Returns the number of slots with a task.
    pub(super) fn slots(&self) -> usize {
        self.running.len() - self.vacant.len()
    }

    /// Opens a slot for a new task, and returns the slot's number.
    pub(super) fn open(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() - 1
        })
    }

    pub(super) fn running(&mut self) -> impl Iterator<Item = &mut RunningJob> {
        self.running.iter_mut().flatten().chain(self.batch_rest.values_mut().flatten())
    }

    /// Queues the jobs of one claim in order. Jobs with a rate permit are queued before jobs without a permit, but after earlier jobs with
    /// a permit.
    pub(super) fn push(&mut self, leased: Vec<LeasedJob>) {
        if leased.first().is_some_and(|job| job.job.start_deadline.is_some()) {
            let with_permit = self.queued.iter().take_while(|job| job.job.start_deadline.is_some()).count();
            let others = self.queued.split_off(with_permit);
            self.queued.extend(leased.into_iter().map(Arc::new).chain(others));
        } else {
            self.queued.extend(leased.into_iter().map(Arc::new));
        }
    }

    /// Takes the next queued job that has a valid rate permit or needs no permit. Jobs whose permit has expired are moved to `late`.
    pub(super) fn pop(&mut self) -> Option<Arc<LeasedJob>> {
        loop {
            let job = self.queued.pop_front()?;
            if !job.has_no_room() {
                return Some(job);
            }
            self.late.push(job);
        }
    }

    /// Returns whether no job is queued or buffered for a batch.
    pub(super) fn has_no_waiting(&self) -> bool {
        self.queued.is_empty() && self.batches.is_empty()
    }

    /// Takes the next job or batch like [`SlotJobs::next`], but separates jobs whose start deadline has passed. The first element of the
    /// result contains the separated jobs. The other elements are the results of [`SlotJobs::next`].
    pub(super) fn next_in_time(&mut self, now: Instant) -> (Vec<Arc<LeasedJob>>, Option<NextJobs>, bool) {
        let (mut expired, mut has_room) = (Vec::new(), false);
        loop {
            let (next, more_room) = self.next(now);
            has_room |= more_room;
            let Some((first, others)) = next else { return (expired, None, has_room) };
            let is_late = |job: &Arc<LeasedJob>| job.begin_by.is_some_and(|deadline| now >= deadline);
            let (late, batch): (Vec<_>, Vec<_>) = std::iter::once(first).chain(others).partition(is_late);
            expired.extend(late);
            let mut batch = batch.into_iter();
            if let Some(first) = batch.next() {
                return (expired, Some((first, batch.collect())), has_room);
            }
        }
    }

    /// Takes the job or batch that a slot runs next. Single jobs and batches alternate. Also returns whether the batch buffer has space
    /// again for a waiting claimer.
    pub(super) fn next(&mut self, now: Instant) -> (Option<NextJobs>, bool) {
        let batch_first = std::mem::replace(&mut self.batches.is_next, false);
        let batch = if batch_first || self.queued.is_empty() { self.batches.take(now) } else { None };
        if let Some(batch) = batch {
            let mut batch = batch.into_iter();
            let remaining = self.batches.jobs().count();
            let is_low = self.batches.wake_at.take_if(|limit| remaining <= *limit).is_some();
            let has_room = self.batches.wake_claimers() || is_low;
            return (batch.next().map(|first| (first, batch.collect())), has_room);
        }
        match self.pop() {
            Some(job) => {
                self.batches.is_next = true;
                (Some((job, Vec::new())), false)
            }
            None => (None, self.batches.wake_claimers()),
        }
    }
}

/// First job for a slot, and the other jobs of its batch. The second element is empty for a single job.
pub(super) type NextJobs = (Arc<LeasedJob>, Vec<Arc<LeasedJob>>);
