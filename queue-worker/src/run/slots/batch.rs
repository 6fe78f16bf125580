//! Slots for jobs whose handlers take batches. A batch uses one slot. Jobs are buffered until the batch is full, or until the wait
//! time of the batch's first job has passed. Single jobs and batches alternate.

use std::{
    sync::{Arc, MutexGuard},
    time::Instant,
};

use queue_core::runner::{ClaimedJob, run_batch};

use super::{SlotAttempt, Slots, jobs::SlotJobs, lock};
use crate::{lanes::LeasedJob, run::running::RunningJob, settle::Settlement};

impl Slots {
    /// Queues jobs like [`Slots::push`], but buffers jobs that can run in a batch.
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

    /// Spawns a task for each single job and each ready batch while slots are free. Also starts a timer for the next batch.
    fn start_tasks(self: &Arc<Self>, jobs: &mut SlotJobs, singles: usize, now: Instant) {
        let count = singles + jobs.batches.ready(now);
        for _ in 0..count.min(self.concurrency.saturating_sub(jobs.slots())) {
            let slot = jobs.open();
            self.context.handlers.spawn(Arc::clone(self).work(slot));
        }
        self.start_batch_timer(jobs, now);
    }

    /// Starts a timer that fires when the next batch becomes ready. The timer does not keep the slots alive.
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

    /// Takes the slot's next job or batch. Called by [`Slots::next`] while jobs are buffered or a claimer is waiting for buffer space.
    pub(super) fn next_with_batches(self: &Arc<Self>, jobs: &mut MutexGuard<'_, SlotJobs>, slot: usize) -> Option<SlotAttempt> {
        let now = Instant::now();
        let (mut expired, next, has_room) = jobs.next_in_time(now);
        let queued = jobs.queued.len();
        let is_low = jobs.wake_at.take_if(|limit| queued <= *limit).is_some();
        if has_room || is_low {
            jobs.claimers.wake_first();
        }
        self.start_batch_timer(jobs, now);
        // If only expired jobs are left, the slot takes one of them and sends the verdicts of all expired jobs. The slot stays occupied
        // until the verdicts are sent, which bounds the number of jobs that wait for the settle loop.
        let Some((first, others)) = next.or_else(|| expired.pop().map(|last| (last, Vec::new()))) else {
            jobs.vacant.push(slot);
            return None;
        };
        if !others.is_empty() {
            jobs.batch_rest.insert(slot, others.iter().map(|job| RunningJob::new(job, now)).collect());
        }
        Some(SlotAttempt { expired, ..self.begin(jobs, slot, first, others) })
    }

    /// Sends the verdicts on jobs that expired before they started.
    pub(super) async fn expire(&self, expired: Vec<Arc<LeasedJob>>) {
        for leased in expired {
            // Sending fails only if the worker has ended without waiting for this slot. The job is then recovered.
            let _ = self.context.settle.send(Settlement::expire(&leased)).await;
        }
    }

    /// Runs a batch in a slot. Each job in the batch gets a separate verdict.
    pub(super) async fn run_batch(&self, slot: usize, SlotAttempt { leased, others, start, halt, .. }: SlotAttempt) {
        // The job type is always registered, because only jobs whose handler takes batches are buffered.
        let Some(registration) = self.context.registry.get(leased.job.job_type) else { return };
        let all: Vec<&Arc<LeasedJob>> = std::iter::once(&leased).chain(&others).collect();
        let jobs: Vec<&ClaimedJob> = all.iter().map(|leased| &leased.job).collect();
        let ended = run_batch(registration, &jobs, &self.context.shared, &halt, |failure| self.slow_down(&leased.job, &failure)).await;
        if !self.begin_settling_batch(slot) {
            return;
        }
        // All jobs in the batch share one jitter value, so jobs that failed together become due together. The retry splits them into
        // smaller batches.
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

    /// Marks all jobs in the slot's batch as settling, like [`Slots::begin_settling`].
    fn begin_settling_batch(&self, slot: usize) -> bool {
        let mut jobs = lock(&self.jobs);
        let SlotJobs { running, batch_rest, .. } = &mut *jobs;
        let Some(first) = running[slot].as_mut() else { return false };
        first.is_settling = true;
        batch_rest.get_mut(&slot).into_iter().flatten().for_each(|running| running.is_settling = true);
        true
    }
}
