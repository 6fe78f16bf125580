//! Slots of a worker some of whose handlers take batches: a batch takes one slot, and waits beside them until it is full or has waited long
//! enough. Plain jobs of such a worker take turns with its batches.

use std::{
    sync::{Arc, MutexGuard},
    time::Instant,
};

use queue_core::runner::{ClaimedJob, run_batch};

use super::{Attempt, Slots, jobs::Jobs, lock};
use crate::{lanes::LeasedJob, run::running::RunningJob, settle::Settlement};

impl Slots {
    /// As [`Slots::push`]: those that may run with others are kept for a batch.
    pub(super) fn push_apart(self: &Arc<Self>, claimed: Vec<LeasedJob>) {
        let (now, mut jobs, mut alone) = (Instant::now(), lock(&self.jobs), Vec::new());
        for job in claimed {
            let known = self.context.registry.get(job.job.job_type).filter(|known| known.takes_batches());
            let left = match known {
                Some(known) => jobs.gathering.put(job, known.options(), now),
                None => Some(job),
            };
            alone.extend(left);
        }
        let more = alone.len();
        jobs.put(alone);
        self.begin_tasks(&mut jobs, more, now);
    }

    /// A task for each of so many jobs and for each batch that is ripe, as far as slots are free; and somebody who looks after the others.
    fn begin_tasks(self: &Arc<Self>, jobs: &mut Jobs, alone: usize, now: Instant) {
        let more = alone + jobs.gathering.ripe(now);
        for _ in 0..more.min(self.concurrency.saturating_sub(jobs.slots())) {
            let slot = jobs.open();
            self.context.handlers.spawn(Arc::clone(self).work(slot));
        }
        self.watch(jobs, now);
    }

    /// Looks again once the next batch has waited long enough. Holds nothing until then.
    fn watch(self: &Arc<Self>, jobs: &mut Jobs, now: Instant) {
        let Some(at) = jobs.gathering.next_ripe(now) else { return };
        if jobs.gathering.watched.is_some_and(|watched| watched <= at) {
            return;
        }
        jobs.gathering.watched = Some(at);
        let slots = Arc::downgrade(self);
        self.context.handlers.spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            if let Some(slots) = slots.upgrade() {
                let mut jobs = lock(&slots.jobs);
                jobs.gathering.watched.take_if(|watched| *watched <= at);
                slots.begin_tasks(&mut jobs, 0, Instant::now());
            }
        });
    }

    /// As [`Slots::next`], while jobs wait for a batch, or a claimer for room.
    pub(super) fn next_apart(self: &Arc<Self>, jobs: &mut MutexGuard<'_, Jobs>, slot: usize) -> Option<Attempt> {
        let now = Instant::now();
        let (mut late, next, has_room) = jobs.next_in_time(now);
        let queued = jobs.queued.len();
        let is_free = jobs.ring_at.take_if(|few| queued <= *few).is_some();
        if has_room || is_free {
            jobs.line.wake_first();
        }
        self.watch(jobs, now);
        // Of those that are late the slot tells by itself, so that it takes no more than can be written.
        let Some((first, others)) = next.or_else(|| late.pop().map(|last| (last, Vec::new()))) else {
            jobs.vacant.push(slot);
            return None;
        };
        if !others.is_empty() {
            jobs.beside.insert(slot, others.iter().map(|job| RunningJob::new(job, now)).collect());
        }
        Some(Attempt { late, ..self.begin(jobs, slot, first, others) })
    }

    /// What was to begin earlier is over.
    pub(super) async fn expire(&self, late: Vec<Arc<LeasedJob>>) {
        for claimed in late {
            // Fails only when the worker has ended without waiting for this; then the job is recovered, and goes on.
            let _ = self.context.settle.send(Settlement::expire(&claimed)).await;
        }
    }

    /// Runs a batch in this slot; each of its jobs has a verdict of its own.
    pub(super) async fn run_batch(&self, slot: usize, Attempt { claimed, others, since, halt, .. }: Attempt) {
        // It was gathered because it takes batches.
        let Some(registration) = self.context.registry.get(claimed.job.job_type) else { return };
        let all: Vec<&Arc<LeasedJob>> = std::iter::once(&claimed).chain(&others).collect();
        let jobs: Vec<&ClaimedJob> = all.iter().map(|claimed| &claimed.job).collect();
        let ended = run_batch(registration, &jobs, &self.context.shared, &halt, |failure| self.slow_down(&claimed.job, &failure)).await;
        if !self.begin_verdicts(slot) {
            return;
        }
        // Those that failed together return together: smaller batches are made of them.
        let (ran, dice) = (since.elapsed(), fastrand::f64());
        for (claimed, ended) in all.iter().zip(ended) {
            self.tell(claimed, Some(registration), ended, (since, ran, dice)).await;
        }
        let mut jobs = lock(&self.jobs);
        let over = jobs.running[slot].take().into_iter().chain(jobs.beside.remove(&slot).into_iter().flatten());
        for running in over.filter(|running| running.cancelling) {
            halt.forget(running.claimed.job.token, running.claimed.job.id);
        }
    }

    /// As [`Slots::begin_verdict`], of all jobs of the slot's batch at once.
    fn begin_verdicts(&self, slot: usize) -> bool {
        let mut jobs = lock(&self.jobs);
        let Jobs { running, beside, .. } = &mut *jobs;
        let Some(first) = running[slot].as_mut() else { return false };
        first.judged = true;
        beside.get_mut(&slot).into_iter().flatten().for_each(|running| running.judged = true);
        true
    }
}
