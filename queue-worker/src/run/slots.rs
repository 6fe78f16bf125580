//! Where jobs run: each queue has its own slots, so that a slow queue takes none from a fast one.
//!
//! A slot is a task that runs one job after another until none is queued; an idle queue costs nothing. This file counts and keeps what runs;
//! how one attempt is run is `queue_core::attempt`'s.

mod batch;
pub(super) mod demand;
mod gather;
mod jobs;
pub(super) mod line;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use queue_core::{
    Failure, FailureKind, JobId, Outcome, Registration, Registry,
    runner::{ClaimedJob, Ended, Halt, Shared, run},
};
use tokio::{runtime::Handle, sync::mpsc::Sender};
use uuid::Uuid;

use self::jobs::Jobs;
use super::{
    running::{Pace, RunningJob},
    share::Share,
    told::Teller,
};
use crate::{
    lanes::{LeasedJob, PayloadMemory},
    live::{Bell, Life, OneLife, Paused, Pauses, Slowed},
    settle::Settlement,
    tally::{Attempt as CountedAttempt, How, QueueNumber, Tallies},
};

/// What all slots of a worker have in common.
pub(crate) struct SlotContext {
    pub(crate) registry: Registry,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settle: Sender<Settlement>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) pauses: Pauses,
    pub(crate) life: Life,
    /// The runtime that handlers run on: the one that the worker was started on.
    pub(crate) handlers: Handle,
    /// How long a handler whose job was cancelled may go on.
    pub(crate) cancel_grace: Duration,
    pub(crate) teller: Teller,
    pub(crate) tallies: Tallies,
    /// Whether any type's handler does.
    pub(crate) takes_batches: bool,
    /// Of the slots of all stores, if there are many.
    pub(crate) share: Option<Share>,
    pub(crate) hand: Arc<PayloadMemory>,
    /// Where handlers were told to slow down.
    pub(crate) slowed: Arc<Slowed>,
}

/// The slots of one queue.
pub(crate) struct Slots {
    context: Arc<SlotContext>,
    /// In what is counted.
    queue: QueueNumber,
    concurrency: usize,
    jobs: Mutex<Jobs>,
    finished: AtomicUsize,
    pace: Mutex<Pace>,
    halt: Mutex<Arc<Halt>>,
    life: OneLife,
}

impl Slots {
    /// So many handlers run at a time.
    pub(super) fn new(context: &Arc<SlotContext>, concurrency: usize, queue: &str) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            queue: context.tallies.queue(queue),
            concurrency,
            jobs: Mutex::default(),
            finished: AtomicUsize::new(0),
            pace: Mutex::new(Pace::new(Instant::now())),
            halt: Mutex::new(Arc::new(Halt::new(context.cancel_grace))),
            life: context.life.present(),
        })
    }

    /// Hands jobs to the slots, in this order.
    pub(crate) fn push(self: &Arc<Self>, mut claimed: Vec<LeasedJob>) {
        for job in &mut claimed {
            job.held = self.context.hand.hold(job.job.payload.as_ref().map_or(0, String::len));
        }
        if self.context.takes_batches {
            return self.push_apart(claimed);
        }
        let mut jobs = lock(&self.jobs);
        let more = claimed.len().min(self.concurrency.saturating_sub(jobs.slots()));
        jobs.put(claimed);
        for _ in 0..more {
            let slot = jobs.open();
            self.context.handlers.spawn(Arc::clone(self).work(slot));
        }
    }

    /// How many handlers run at a time.
    pub(crate) fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// How many handlers run, each with one job or one batch.
    pub(crate) fn busy(&self) -> usize {
        lock(&self.jobs).running.iter().flatten().count()
    }

    /// How many handlers could begin now.
    pub(crate) fn free(&self) -> usize {
        let jobs = lock(&self.jobs);
        let waits = !jobs.queued.is_empty() || jobs.gathering.ripe(Instant::now()) > 0;
        if waits || jobs.promised > 0 { 0 } else { self.concurrency.saturating_sub(jobs.slots()) }
    }

    /// Releases a job that no slot has seen.
    pub(crate) async fn give_back(&self, job: &LeasedJob) {
        // Fails only when the worker has ended without waiting for this; then the job is recovered like that of a silent worker.
        let _ = self.context.settle.send(Settlement::release(job)).await;
    }

    /// Whether this job waits or runs here.
    pub(crate) fn holds(&self, id: JobId) -> bool {
        let mut jobs = lock(&self.jobs);
        jobs.running().any(|running| running.claimed.job.id == id)
            || jobs.queued.iter().chain(jobs.gathering.jobs()).any(|job| job.job.id == id)
    }

    /// Whether nothing is queued or running.
    pub(crate) fn is_idle(&self) -> bool {
        let mut jobs = lock(&self.jobs);
        jobs.none_wait() && jobs.running().next().is_none()
    }

    /// Takes back what no slot has begun, to be released.
    pub(crate) fn take_queued(&self) -> Vec<Settlement> {
        let mut jobs = lock(&self.jobs);
        let gathered = jobs.gathering.remove(|_| true);
        jobs.queued.drain(..).chain(gathered).map(|job| Settlement::release(&job)).collect()
    }

    /// Takes what these cover from among what no slot has begun.
    pub(super) fn take_covered(&self, queue: &str, paused: &Paused) -> Vec<Arc<LeasedJob>> {
        let mut jobs = lock(&self.jobs);
        let stops = |job: &LeasedJob| paused.stops(queue, job.job.job_type, job.holding.gates());
        let (covered, left): (VecDeque<_>, _) = jobs.queued.drain(..).partition(|job| stops(job));
        jobs.queued = left;
        let gathered = jobs.gathering.remove(stops);
        covered.into_iter().chain(gathered).collect()
    }

    /// Tells running handlers that they should end now.
    pub(crate) fn ask(&self) {
        lock(&self.halt).ask.shut_down();
    }

    /// Drops running handlers at their next `await`; each is released.
    pub(crate) fn drop_running(&self) {
        lock(&self.halt).drop.cancel();
    }

    /// What runs all the same, because it never awaits: to be released without its slot.
    pub(crate) fn take_running(&self) -> Vec<Settlement> {
        let mut jobs = lock(&self.jobs);
        let Jobs { running, beside, .. } = &mut *jobs;
        let taken = running.iter_mut().filter_map(|slot| slot.take_if(|running| !running.judged));
        let others = beside.values_mut().flat_map(|others| others.extract_if(.., |running| !running.judged));
        let release = |RunningJob { claimed, since, .. }: RunningJob| {
            Settlement::release(&claimed).counting(self.counted(&claimed, self.known(&claimed), (since, How::Plainly)))
        };
        taken.chain(others).map(release).collect()
    }

    /// Forgets everything: the lease is lost, and what is queued or running belongs to others.
    pub(crate) fn abandon(&self) {
        let mut jobs = lock(&self.jobs);
        let halt = std::mem::replace(&mut *lock(&self.halt), Arc::new(Halt::new(self.context.cancel_grace)));
        let lost = jobs.running().filter(|running| !running.judged);
        self.context.tallies.note(lost.map(|RunningJob { claimed, since, .. }| {
            (self.counted(claimed, self.known(claimed), (*since, How::LeaseLost)), claimed.job.released().counted(), since.elapsed())
        }));
        jobs.queued.clear();
        jobs.running.fill_with(|| None);
        jobs.gathering.remove(|_| true);
        jobs.beside.clear();
        self.life.renew();
        drop(jobs);
        halt.ask.lose();
        halt.drop.cancel();
    }

    /// Tells the handler of a cancelled job to stop. If it has not begun, returns its ending.
    pub(crate) fn cancel(&self, token: Uuid, id: JobId) -> Option<Settlement> {
        let halt = Arc::clone(&lock(&self.halt));
        let mut jobs = lock(&self.jobs);
        let mut runs = false;
        for running in jobs.running().filter(|running| running.claimed.job.token == token && running.claimed.job.id == id) {
            runs = true;
            if !running.judged && !std::mem::replace(&mut running.cancelling, true) {
                tracing::info!(job = %id, "cancelled while it runs: its handler is told to stop");
                halt.cancel(token, id);
            }
        }
        if runs {
            return None;
        }
        let is_it = |job: &LeasedJob| job.job.token == token && job.job.id == id;
        let queued = jobs.queued.iter().position(|job| is_it(job)).and_then(|place| jobs.queued.remove(place));
        queued.or_else(|| jobs.gathering.remove(is_it).pop()).map(|job| Settlement::cancel(&job))
    }

    /// Reports, once each, handlers that go on long after their timeout, which means that they never await.
    pub(crate) fn report_stuck(&self) {
        for running in lock(&self.jobs).running() {
            let known = self.context.registry.get(running.claimed.job.job_type);
            if let Some(limit) = known.and_then(|known| known.options().timeout)
                && running.since.elapsed() > limit + Duration::from_secs(5)
                && !std::mem::replace(&mut running.reported, true)
            {
                let (job, job_type) = (running.claimed.job.id, running.claimed.job.job_type);
                let seconds = running.since.elapsed().as_secs();
                tracing::error!(%job, job_type, seconds, "handler is stuck: past its timeout and never awaiting; move blocking work to `spawn_blocking`");
            }
        }
    }

    async fn work(self: Arc<Self>, slot: usize) {
        loop {
            let _permit = loop {
                let permit = match &self.context.share {
                    Some(share) => Some(share.enter().await),
                    None => None,
                };
                // A process that stood still for longer than its lease is about to fence itself, and then none of these are left. It may have done so
                // while it waited for leave.
                if !self.life.is_over() || lock(&self.jobs).none_wait() {
                    break permit;
                }
                drop(permit);
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            let Some(mut attempt) = self.next(slot) else { break };
            if !attempt.late.is_empty() {
                Box::pin(self.expire(std::mem::take(&mut attempt.late))).await;
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

    /// The slot's next job with what tells it to end, or the end of this slot; under one lock, so that a job handed over meanwhile finds either this
    /// slot or one that is free, and one that is abandoned meanwhile is told.
    fn next(self: &Arc<Self>, slot: usize) -> Option<Attempt> {
        let mut jobs = lock(&self.jobs);
        if !jobs.gathering.is_idle() {
            let next = self.next_apart(&mut jobs, slot);
            self.give_back_late(&mut jobs);
            return next;
        }
        let job = jobs.pop();
        self.give_back_late(&mut jobs);
        if jobs.ring_at.is_some_and(|few| jobs.queued.len() <= few) {
            jobs.ring_at = None;
            jobs.line.wake_first();
        }
        let Some(claimed) = job else {
            jobs.vacant.push(slot);
            return None;
        };
        Some(self.begin(&mut jobs, slot, claimed, Vec::new()))
    }

    fn begin(&self, jobs: &mut Jobs, slot: usize, claimed: Arc<LeasedJob>, others: Vec<Arc<LeasedJob>>) -> Attempt {
        let since = Instant::now();
        jobs.running[slot] = Some(RunningJob::new(&claimed, since));
        Attempt { claimed, others, late: Vec::new(), since, halt: Arc::clone(&lock(&self.halt)) }
    }

    async fn run(&self, slot: usize, Attempt { claimed, since, halt, .. }: Attempt) {
        let job = &claimed.job;
        if claimed.begin_by.is_some_and(|late| since >= late) {
            if self.begin_verdict(slot) {
                // Fails only when the worker has ended without waiting for this; then the job is recovered, and goes on.
                let _ = self.context.settle.send(Settlement::expire(&claimed)).await;
                lock(&self.jobs).running[slot] = None;
            }
            return;
        }
        let registration = self.context.registry.get(job.job_type);
        let ended = match registration {
            Some(registration) => {
                let ended = run(registration, job, &self.context.shared, &halt, |failure| self.slow_down(job, &failure)).await;
                if ended.outcome() == Outcome::Interrupted && claimed.has_no_room() {
                    self.context.bell.note_late(claimed.holding.gates());
                }
                ended
            }
            None => Ended::terminal("no handler for this job type in this worker"),
        };
        if self.begin_verdict(slot) {
            let ran = ended.ran(since);
            self.tell(&claimed, registration, ended, (since, ran, fastrand::f64())).await;
            if lock(&self.jobs).running[slot].take().is_some_and(|running| running.cancelling) {
                halt.forget(job.token, job.id);
            }
        }
    }

    /// Sends a verdict on its way: when it began, and how long it ran. The dice are for jitter.
    async fn tell(&self, claimed: &LeasedJob, known: Option<&Registration>, ended: Ended, (since, ran, dice): (Instant, Duration, f64)) {
        let (outcome, written) = (ended.outcome(), ended.is_written());
        let how = if ended.is_over() && !written { How::LeaseLost } else { How::of(outcome) };
        let settlement = Settlement::of(claimed, known, ended, ran, dice).counting(self.counted(claimed, known, (since, how)));
        // Not of a lease that is known to be lost: others have the job.
        if written || !settlement.is_settled {
            self.context.teller.tell(&claimed.job, outcome, &settlement.ending);
        }
        // Fails only when the worker has ended without waiting for this; then the job is recovered like that of a silent worker.
        let _ = self.context.settle.send(settlement).await;
    }

    fn known(&self, claimed: &LeasedJob) -> Option<&Registration> {
        self.context.registry.get(claimed.job.job_type)
    }

    /// What is counted of an attempt that began then and ended so, by the present name of its type.
    fn counted(&self, claimed: &LeasedJob, known: Option<&Registration>, (since, how): (Instant, How)) -> CountedAttempt {
        let job_type = known.map_or(claimed.job.job_type, |known| known.options().name);
        CountedAttempt { queue: self.queue, job_type, how, start: claimed.latency(since) }
    }

    /// Releases, beside the attempts, what it is too late to begin under its rate.
    fn give_back_late(self: &Arc<Self>, jobs: &mut Jobs) {
        if jobs.late.is_empty() {
            return;
        }
        let (late, slots) = (std::mem::take(&mut jobs.late), Arc::clone(self));
        self.context.handlers.spawn(async move {
            tracing::debug!(jobs = late.len(), "too late to begin under their rate: given back");
            for job in late {
                slots.context.bell.note_late(job.holding.gates());
                slots.give_back(&job).await;
            }
        });
    }

    /// A handler was told to slow down: so is all that the limits of its type cover.
    fn slow_down(&self, job: &ClaimedJob, failure: &Failure) {
        if let (FailureKind::SlowDown(wait), Some(paused)) = (failure.kind(), self.context.pauses.now()) {
            self.context.slowed.note(paused.slowed(&job.queue, job.job_type), wait);
        }
    }

    /// Not so when the job was taken from its slot meanwhile: abandoned, or released by a shutdown that could wait no longer.
    fn begin_verdict(&self, slot: usize) -> bool {
        lock(&self.jobs).running[slot].as_mut().is_some_and(|running| {
            running.judged = true;
            true
        })
    }
}

/// What a slot runs next.
struct Attempt {
    claimed: Arc<LeasedJob>,
    /// The others of its batch.
    others: Vec<Arc<LeasedJob>>,
    /// Those that were to be of it, and to begin earlier.
    late: Vec<Arc<LeasedJob>>,
    since: Instant,
    halt: Arc<Halt>,
}

/// A lock that a panic elsewhere left poisoned is as good as any: nothing is half-written under these.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
