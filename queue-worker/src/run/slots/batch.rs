//! Slots of a worker with handlers that take batches. A batch takes one slot. It waits in a buffer until it is full or has waited long
//! enough. Single jobs and batches of such a worker alternate.

use std::{
    sync::{Arc, MutexGuard},
    time::Instant,
};

use queue_core::runner::{ClaimedJob, run_batch};

use super::{SlotAttempt, Slots, jobs::SlotJobs, lock};
use crate::{lanes::LeasedJob, run::running::RunningJob, settle::Settlement};

impl Slots {
    /// Like [`Slots::push`], but buffers the jobs that may run in a batch.
    pub(super) fn push_batched(self: &Arc<Self>, leased: Vec<LeasedJob>) {
        let (now, mut jobs, mut singles) = (Instant::now(), lock(&self.jobs), Vec::new());
        for job in leased {
            let registration = self.context.registry.get(job.job.job_type).filter(|registration| registration.takes_batches());
            let single = match registration {
                Some(registration) => jobs.batches.push(job, registration.options(), now),
                None => Some(job),
            };
            singles.extend(single);
        }
        let count = singles.len();
        jobs.push(singles);
        self.start_tasks(&mut jobs, count, now);
    }

    /// Spawns a task for each single job and each ready batch, as far as slots are free, and a timer for the next batch.
    fn start_tasks(self: &Arc<Self>, jobs: &mut SlotJobs, singles: usize, now: Instant) {
        let count = singles + jobs.batches.ready(now);
        for _ in 0..count.min(self.concurrency.saturating_sub(jobs.slots())) {
            let slot = jobs.open();
            self.context.handlers.spawn(Arc::clone(self).work(slot));
        }
        self.start_batch_timer(jobs, now);
    }

    /// Starts a timer for the time at which the next batch becomes ready. The timer does not keep the slots alive.
    fn start_batch_timer(self: &Arc<Self>, jobs: &mut SlotJobs, now: Instant) {
        let Some(at) = jobs.batches.next_ready(now) else { return };
        if jobs.batches.timer_at.is_some_and(|timer| timer <= at) {
            return;
        }
        jobs.batches.timer_at = Some(at);
        let slots = Arc::downgrade(self);
        self.context.handlers.spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            if let Some(slots) = slots.upgrade() {
                let mut jobs = lock(&slots.jobs);
                jobs.batches.timer_at.take_if(|timer| *timer <= at);
                slots.start_tasks(&mut jobs, 0, Instant::now());
            }
        });
    }

    /// Like [`Slots::next`], while jobs wait for a batch or a claimer waits for room.
    pub(super) fn next_with_batches(self: &Arc<Self>, jobs: &mut MutexGuard<'_, SlotJobs>, slot: usize) -> Option<SlotAttempt> {
        let now = Instant::now();
        let (mut expired, next, has_room) = jobs.next_in_time(now);
        let queued = jobs.queued.len();
        let is_low = jobs.wake_at.take_if(|limit| queued <= *limit).is_some();
        if has_room || is_low {
            jobs.claimers.wake_first();
        }
        self.start_batch_timer(jobs, now);
        // The slot itself sends the verdicts on expired jobs, which bounds the number of jobs that wait for the settle loop.
        let Some((first, others)) = next.or_else(|| expired.pop().map(|last| (last, Vec::new()))) else {
            jobs.vacant.push(slot);
            return None;
        };
        if !others.is_empty() {
            jobs.batch_rest.insert(slot, others.iter().map(|job| RunningJob::new(job, now)).collect());
        }
        Some(SlotAttempt { expired, ..self.begin(jobs, slot, first, others) })
    }

    /// Sends verdicts on jobs whose start deadline has passed.
    pub(super) async fn expire(&self, expired: Vec<Arc<LeasedJob>>) {
        for leased in expired {
            // Fails only if the worker has ended without waiting for this slot. Recovery then releases the job.
            let _ = self.context.settle.send(Settlement::expire(&leased)).await;
        }
    }

    /// Runs a batch in this slot. Each of its jobs gets a verdict of its own.
    pub(super) async fn run_batch(&self, slot: usize, SlotAttempt { leased, others, start, halt, .. }: SlotAttempt) {
        // Always registered: only jobs whose handler takes batches are buffered.
        let Some(registration) = self.context.registry.get(leased.job.job_type) else { return };
        let all: Vec<&Arc<LeasedJob>> = std::iter::once(&leased).chain(&others).collect();
        let jobs: Vec<&ClaimedJob> = all.iter().map(|leased| &leased.job).collect();
        let ended = run_batch(registration, &jobs, &self.context.shared, &halt, |failure| self.slow_down(&leased.job, &failure)).await;
        if !self.begin_settling_batch(slot) {
            return;
        }
        // One jitter for all: jobs that failed together are due together, and are split into smaller batches.
        let (ran, jitter) = (start.elapsed(), fastrand::f64());
        for (leased, ended) in all.iter().zip(ended) {
            self.settle(leased, Some(registration), ended, (start, ran, jitter)).await;
        }
        let mut jobs = lock(&self.jobs);
        let finished = jobs.running[slot].take().into_iter().chain(jobs.batch_rest.remove(&slot).into_iter().flatten());
        for running in finished.filter(|running| running.is_cancelling) {
            halt.forget(running.leased.job.token, running.leased.job.id);
        }
    }

    /// Like [`Slots::begin_settling`], for all jobs of the slot's batch.
    fn begin_settling_batch(&self, slot: usize) -> bool {
        let mut jobs = lock(&self.jobs);
        let SlotJobs { running, batch_rest, .. } = &mut *jobs;
        let Some(first) = running[slot].as_mut() else { return false };
        first.is_settling = true;
        batch_rest.get_mut(&slot).into_iter().flatten().for_each(|running| running.is_settling = true);
        true
    }
}
