//! Slots of one queue. Queues do not share slots, so that a slow queue does not take slots from a fast queue.
//!
//! A slot is a task that runs one job after another until no job is queued. An idle queue has no tasks. This module counts and tracks
//! running jobs, and `queue_core::attempt` runs each attempt.

mod batch;
mod batch_buffer;
pub(super) mod claimer_queue;
mod context;
mod jobs;
pub(super) mod reserve;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use queue_core::{
    Failure, FailureKind, JobId,
    options::Outcome,
    registry::Registration,
    runner::{AttemptEnd, ClaimedJob, Halt, run},
};
use uuid::Uuid;

pub(crate) use self::context::SlotContext;
use self::jobs::SlotJobs;
use super::running::{FinishRate, RunningJob};
use crate::{
    lanes::LeasedJob,
    live::{OwnLease, PauseSnapshot},
    settle::Settlement,
    tally::{AttemptEndKind, CountedAttempt, QueueNumber},
};

/// Time by which a running handler must exceed its timeout to count as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Interval at which a slot checks whether the jobs of an expired lease have been abandoned.
const ABANDON_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Slots and jobs of one queue.
pub(crate) struct Slots {
    context: Arc<SlotContext>,
    /// Number that identifies the queue in metrics.
    queue: QueueNumber,
    concurrency: usize,
    jobs: Mutex<SlotJobs>,
    finished: AtomicUsize,
    rate: Mutex<FinishRate>,
    halt: Mutex<Arc<Halt>>,
    deadline: OwnLease,
}

impl Slots {
    /// Creates slots for up to `concurrency` handlers.
    pub(super) fn new(context: &Arc<SlotContext>, concurrency: usize, queue: &str) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            queue: context.metrics.queue(queue),
            concurrency,
            jobs: Mutex::default(),
            finished: AtomicUsize::new(0),
            rate: Mutex::new(FinishRate::new(Instant::now())),
            halt: Mutex::new(Arc::new(Halt::new(context.cancel_grace))),
            deadline: context.lease_deadline.current(),
        })
    }

    /// Queues jobs in the given order, and spawns tasks for the jobs while slots are free.
    pub(crate) fn push(self: &Arc<Self>, mut leased: Vec<LeasedJob>) {
        for job in &mut leased {
            job.held = self.context.hand.hold(job.job.payload.as_ref().map_or(0, String::len));
        }
        if self.context.takes_batches {
            return self.push_batched(leased);
        }
        let mut jobs = lock(&self.jobs);
        let count = leased.len().min(self.concurrency.saturating_sub(jobs.slots()));
        jobs.push(leased);
        for _ in 0..count {
            let slot = jobs.open();
            self.context.handlers.spawn(Arc::clone(self).work(slot));
        }
    }

    /// Returns the maximum number of concurrent handlers.
    pub(crate) fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// Returns the number of running handlers. Each handler runs one job or one batch.
    pub(crate) fn busy(&self) -> usize {
        lock(&self.jobs).running.iter().flatten().count()
    }

    /// Returns the number of slots without a task. Returns zero while a job or a ready batch is waiting, or while an in-flight claim has
    /// reserved slots.
    pub(crate) fn free(&self) -> usize {
        let jobs = lock(&self.jobs);
        let has_waiting = !jobs.queued.is_empty() || jobs.batches.ready(Instant::now()) > 0;
        if has_waiting || jobs.reserved > 0 { 0 } else { self.concurrency.saturating_sub(jobs.slots()) }
    }

    /// Releases a job that has not been pushed to the slots, or has been taken from the slots.
    pub(crate) async fn give_back(&self, job: &LeasedJob) {
        // Sending fails only if the worker has ended without waiting for this task. The job is then recovered.
        let _ = self.context.settle.send(Settlement::release(job)).await;
    }

    /// Returns whether the job is waiting or running in these slots.
    pub(crate) fn holds(&self, id: JobId) -> bool {
        let mut jobs = lock(&self.jobs);
        jobs.running().any(|running| running.leased.job.id == id)
            || jobs.queued.iter().chain(jobs.batches.jobs()).any(|job| job.job.id == id)
    }

    /// Returns whether no job is waiting or running.
    pub(crate) fn is_idle(&self) -> bool {
        let mut jobs = lock(&self.jobs);
        jobs.has_no_waiting() && jobs.running().next().is_none()
    }

    /// Takes the jobs that no slot has started. Returns the settlements that release these jobs.
    pub(crate) fn take_queued(&self) -> Vec<Settlement> {
        let mut jobs = lock(&self.jobs);
        let buffered = jobs.batches.remove(|_| true);
        jobs.queued.drain(..).chain(buffered).map(|job| Settlement::release(&job)).collect()
    }

    /// Takes the paused jobs that no slot has started.
    pub(super) fn take_paused(&self, queue: &str, paused: &PauseSnapshot) -> Vec<Arc<LeasedJob>> {
        let mut jobs = lock(&self.jobs);
        let is_paused = |job: &LeasedJob| paused.stops(queue, job.job.job_type, job.holding.limit_ids());
        let (covered, others): (VecDeque<_>, _) = jobs.queued.drain(..).partition(|job| is_paused(job));
        jobs.queued = others;
        let buffered = jobs.batches.remove(is_paused);
        covered.into_iter().chain(buffered).collect()
    }

    /// Notifies running handlers that the worker is shutting down.
    pub(crate) fn request_shutdown(&self) {
        lock(&self.halt).stop_request.shut_down();
    }

    /// Drops running handlers at their next `await`. The jobs of these handlers are released.
    pub(crate) fn drop_running(&self) {
        lock(&self.halt).drop.cancel();
    }

    /// Takes the jobs whose handlers are still running because the handlers never await. Returns the settlements that release these jobs.
    pub(crate) fn take_running(&self) -> Vec<Settlement> {
        let mut jobs = lock(&self.jobs);
        let SlotJobs { running, batch_rest, .. } = &mut *jobs;
        let taken = running.iter_mut().filter_map(|slot| slot.take_if(|running| !running.is_settling));
        let others = batch_rest.values_mut().flat_map(|others| others.extract_if(.., |running| !running.is_settling));
        let release = |RunningJob { leased, start, .. }: RunningJob| {
            Settlement::release(&leased).counting(self.counted(&leased, self.registration(&leased), (start, AttemptEndKind::Normal)))
        };
        taken.chain(others).map(release).collect()
    }

    /// Drops all jobs and their handlers without sending verdicts. Other workers recover the jobs.
    pub(crate) fn abandon(&self) {
        let mut jobs = lock(&self.jobs);
        let halt = std::mem::replace(&mut *lock(&self.halt), Arc::new(Halt::new(self.context.cancel_grace)));
        let lost = jobs.running().filter(|running| !running.is_settling);
        self.context.metrics.record(lost.map(|RunningJob { leased, start, .. }| {
            let attempt = self.counted(leased, self.registration(leased), (*start, AttemptEndKind::LeaseLost));
            (attempt, leased.job.released().history_outcome(), start.elapsed())
        }));
        jobs.queued.clear();
        jobs.running.fill_with(|| None);
        jobs.batches.remove(|_| true);
        jobs.batch_rest.clear();
        self.deadline.renew();
        drop(jobs);
        halt.stop_request.lose_lease();
        halt.drop.cancel();
    }

    /// Notifies the handler of a cancelled job. If the handler has not started, returns the settlement that cancels the job.
    pub(crate) fn cancel(&self, token: Uuid, id: JobId) -> Option<Settlement> {
        let halt = Arc::clone(&lock(&self.halt));
        let mut jobs = lock(&self.jobs);
        let is_job = |job: &LeasedJob| job.job.token == token && job.job.id == id;
        let mut is_running = false;
        for running in jobs.running().filter(|running| is_job(&running.leased)) {
            is_running = true;
            if !running.is_settling && !std::mem::replace(&mut running.is_cancelling, true) {
                tracing::info!(job = %id, "running job cancelled; its handler is notified to stop");
                halt.cancel(token, id);
            }
        }
        if is_running {
            return None;
        }
        let queued = jobs.queued.iter().position(|job| is_job(job)).and_then(|index| jobs.queued.remove(index));
        queued.or_else(|| jobs.batches.remove(is_job).pop()).map(|job| Settlement::cancel(&job))
    }

    /// Logs handlers that exceed their timeout by [`STUCK_AFTER`], once each. The timeout cannot end a handler that never awaits.
    pub(crate) fn report_stuck(&self) {
        for running in lock(&self.jobs).running() {
            let registration = self.context.registry.get(running.leased.job.job_type);
            if let Some(timeout) = registration.and_then(|registration| registration.options().timeout)
                && running.start.elapsed() > timeout + STUCK_AFTER
                && !std::mem::replace(&mut running.is_reported, true)
            {
                let (job, job_type) = (running.leased.job.id, running.leased.job.job_type);
                let seconds = running.start.elapsed().as_secs();
                tracing::error!(%job, job_type, seconds, "handler is stuck: past its timeout and never awaiting; \
                    move blocking work to `spawn_blocking`");
            }
        }
    }

    async fn work(self: Arc<Self>, slot: usize) {
        loop {
            let _permit = loop {
                let permit = match &self.context.share {
                    Some(share) => Some(share.acquire().await),
                    None => None,
                };
                // The process may have been suspended for longer than its lease, for example during `acquire`. No job may start before
                // the jobs of the expired lease have been abandoned.
                if !self.deadline.has_ended() || lock(&self.jobs).has_no_waiting() {
                    break permit;
                }
                drop(permit);
                tokio::time::sleep(ABANDON_CHECK_INTERVAL).await;
            };
            let Some(mut attempt) = self.next(slot) else { break };
            if !attempt.expired.is_empty() {
                Box::pin(self.expire(std::mem::take(&mut attempt.expired))).await;
            }
            let jobs = 1 + attempt.others.len();
            if jobs == 1 {
                self.run(slot, attempt).await;
            } else {
                Box::pin(self.run_batch(slot, attempt)).await;
            }
            self.finished.fetch_add(jobs, Relaxed);
        }
    }

    /// Takes the slot's next job, or closes the slot if no job is queued.
    ///
    /// Holds the lock on the jobs throughout. A concurrent [`Slots::push`] therefore sees the slot as either open or vacant, and a
    /// concurrent [`Slots::abandon`] also halts the taken job.
    fn next(self: &Arc<Self>, slot: usize) -> Option<SlotAttempt> {
        let mut jobs = lock(&self.jobs);
        if !jobs.batches.is_idle() {
            let next = self.next_with_batches(&mut jobs, slot);
            self.release_late(&mut jobs);
            return next;
        }
        let job = jobs.pop();
        self.release_late(&mut jobs);
        if jobs.wake_at.is_some_and(|limit| jobs.queued.len() <= limit) {
            jobs.wake_at = None;
            jobs.claimers.wake_first();
        }
        let Some(leased) = job else {
            jobs.vacant.push(slot);
            return None;
        };
        Some(self.begin(&mut jobs, slot, leased, Vec::new()))
    }

    fn begin(&self, jobs: &mut SlotJobs, slot: usize, leased: Arc<LeasedJob>, others: Vec<Arc<LeasedJob>>) -> SlotAttempt {
        let start = Instant::now();
        jobs.running[slot] = Some(RunningJob::new(&leased, start));
        SlotAttempt { leased, others, expired: Vec::new(), start, halt: Arc::clone(&lock(&self.halt)) }
    }

    async fn run(&self, slot: usize, SlotAttempt { leased, start, halt, .. }: SlotAttempt) {
        let job = &leased.job;
        if leased.begin_by.is_some_and(|deadline| start >= deadline) {
            if self.begin_settling(slot) {
                // Sending fails only if the worker has ended without waiting for this slot. The job is then recovered.
                let _ = self.context.settle.send(Settlement::expire(&leased)).await;
                lock(&self.jobs).running[slot] = None;
            }
            return;
        }
        let registration = self.context.registry.get(job.job_type);
        let ended = match registration {
            Some(registration) => {
                let ended = run(registration, job, &self.context.shared, &halt, |failure| self.slow_down(job, &failure)).await;
                if ended.outcome() == Outcome::Interrupted && leased.has_no_room() {
                    self.context.notifier.notify_late_start(leased.holding.limit_ids());
                }
                ended
            }
            None => AttemptEnd::terminal("no handler for this job type in this worker"),
        };
        if self.begin_settling(slot) {
            let ran = ended.ran(start);
            self.settle(&leased, registration, ended, (start, ran, fastrand::f64())).await;
            if lock(&self.jobs).running[slot].take().is_some_and(|running| running.is_cancelling) {
                halt.forget(job.token, job.id);
            }
        }
    }

    /// Sends the verdict on an attempt, and reports the outcome. `start` and `ran` are the attempt's start and duration. `jitter` is a
    /// random number from 0 to 1 that varies the retry delay.
    async fn settle(
        &self,
        leased: &LeasedJob,
        registration: Option<&Registration>,
        ended: AttemptEnd,
        (start, ran, jitter): (Instant, Duration, f64),
    ) {
        let (outcome, is_written) = (ended.outcome(), ended.is_written());
        let end_kind = if ended.is_over() && !is_written { AttemptEndKind::LeaseLost } else { AttemptEndKind::of(outcome) };
        let attempt = self.counted(leased, registration, (start, end_kind));
        let settlement = Settlement::of(leased, registration, ended, ran, jitter).counting(attempt);
        // An attempt is not reported if its lease is known to be lost, because the job belongs to another worker.
        if is_written || !settlement.is_settled {
            self.context.observer.observe(&leased.job, outcome, &settlement.ending);
        }
        // Sending fails only if the worker has ended without waiting for this slot. The job is then recovered.
        let _ = self.context.settle.send(settlement).await;
    }

    fn registration(&self, leased: &LeasedJob) -> Option<&Registration> {
        self.context.registry.get(leased.job.job_type)
    }

    /// Returns the metrics record of an attempt, under the current name of the job type.
    fn counted(
        &self,
        leased: &LeasedJob,
        registration: Option<&Registration>,
        (start, end_kind): (Instant, AttemptEndKind),
    ) -> CountedAttempt {
        let job_type = registration.map_or(leased.job.job_type, |registration| registration.options().name);
        CountedAttempt { queue: self.queue, job_type, end_kind, start: leased.latency(start) }
    }

    /// Spawns a task that releases the jobs whose rate permits have expired.
    fn release_late(self: &Arc<Self>, jobs: &mut SlotJobs) {
        if jobs.late.is_empty() {
            return;
        }
        let (late, slots) = (std::mem::take(&mut jobs.late), Arc::clone(self));
        self.context.handlers.spawn(async move {
            tracing::debug!(jobs = late.len(), "rate permits expired before their jobs started; jobs released");
            for job in late {
                slots.context.notifier.notify_late_start(job.holding.limit_ids());
                slots.give_back(&job).await;
            }
        });
    }

    /// Records a slow-down of limits that cover the job, if `failure` requests one.
    fn slow_down(&self, job: &ClaimedJob, failure: &Failure) {
        if let (FailureKind::SlowDown(wait), Some(paused)) = (failure.kind(), self.context.pauses.now()) {
            self.context.slow_downs.note(paused.limits_to_slow_down(&job.queue, job.job_type), wait);
        }
    }

    /// Marks the slot's job as settling. Returns `false` if the job was abandoned, or was released by a shutdown.
    fn begin_settling(&self, slot: usize) -> bool {
        lock(&self.jobs).running[slot].as_mut().is_some_and(|running| {
            running.is_settling = true;
            true
        })
    }
}

/// Job or batch that a slot is about to run.
struct SlotAttempt {
    leased: Arc<LeasedJob>,
    /// Jobs of the batch other than `leased`. Empty for a single job.
    others: Vec<Arc<LeasedJob>>,
    /// Other jobs whose start deadline had passed when the slot took them. The slot sends their verdicts before it runs the attempt.
    expired: Vec<Arc<LeasedJob>>,
    start: Instant,
    halt: Arc<Halt>,
}

/// Locks a mutex. A poisoned lock stays usable, because a panic cannot leave the protected state half-updated.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
