//! Where jobs run: each queue has its own slots, so that a slow queue takes none from a fast one.
//!
//! A slot is a task that runs one job after another until none is queued; an idle queue costs nothing. This file counts and keeps what runs;
//! how one attempt is run is `queue_core::attempt`'s.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use queue_core::{
    Failure, FailureKind, JobId, Registry,
    runner::{ClaimedJob, Ended, Halt, Shared, run},
};
use tokio::{runtime::Handle, sync::mpsc::Sender};
use uuid::Uuid;

use super::{
    running::{Pace, RunningJob},
    told::Teller,
};
use crate::{
    lanes::Claimed,
    live::{Bell, Life, OneLife, Paused, Pauses},
    settle::Settlement,
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
}

/// The slots of one queue.
pub(crate) struct Slots {
    context: Arc<SlotContext>,
    concurrency: usize,
    jobs: Mutex<Jobs>,
    finished: AtomicUsize,
    pace: Mutex<Pace>,
    halt: Mutex<Arc<Halt>>,
    life: OneLife,
}

/// What waits and what runs.
#[derive(Default)]
struct Jobs {
    queued: VecDeque<Arc<Claimed>>,
    /// Asked for by claims that are in the air.
    promised: usize,
    /// The same by claims under limits.
    apart: usize,
    /// By slot, each of which is a task that runs one job at a time. A job that somebody has entered twice runs twice, and each of its verdicts is
    /// heard.
    running: Vec<Option<RunningJob>>,
    /// The slots that have no task.
    vacant: Vec<usize>,
    /// The claim loop was told that nothing is free. It is to be rung once so few are queued and a slot is free.
    ring_at: Option<usize>,
}

impl Jobs {
    /// How many slots have a task.
    fn slots(&self) -> usize {
        self.running.len() - self.vacant.len()
    }

    /// A slot for one more task.
    fn open(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() - 1
        })
    }

    fn running(&mut self) -> impl Iterator<Item = &mut RunningJob> {
        self.running.iter_mut().flatten()
    }
}

impl Slots {
    /// So many handlers run at a time.
    pub(super) fn new(context: &Arc<SlotContext>, concurrency: usize) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            concurrency,
            jobs: Mutex::default(),
            finished: AtomicUsize::new(0),
            pace: Mutex::new(Pace::new(Instant::now())),
            halt: Mutex::new(Arc::new(Halt::new(context.cancel_grace))),
            life: context.life.present(),
        })
    }

    /// How many jobs to claim now: the free slots, and a tenth of a second's worth in advance. None while that is still half full, so that
    /// fast jobs travel in large batches and slow ones are not hoarded.
    pub(crate) fn demand(self: &Arc<Self>, most: usize) -> Promised {
        let ahead = lock(&self.pace).ahead(Instant::now(), self.finished.load(Relaxed)).min(4 * most);
        let mut jobs = lock(&self.jobs);
        let (coming, free) = (jobs.queued.len() + jobs.promised, self.concurrency.saturating_sub(jobs.slots()));
        let full = coming > ahead / 2 || coming + jobs.apart >= free + ahead;
        jobs.ring_at = full.then_some(ahead / 2);
        let count = if full { 0 } else { (free + ahead - coming - jobs.apart).min(most) };
        jobs.promised += count;
        drop(jobs);
        Promised { slots: Arc::clone(self), count, apart: false }
    }

    /// The same for a claim under limits, of up to `cap`: beside the others, so that neither finds the slots full of what the other is still
    /// asking for.
    pub(crate) fn demand_apart(self: &Arc<Self>, most: usize, cap: usize) -> Promised {
        let ahead = lock(&self.pace).ahead(Instant::now(), self.finished.load(Relaxed)).min(4 * most);
        let mut jobs = lock(&self.jobs);
        let (taken, free) = (jobs.queued.len() + jobs.promised + jobs.apart, self.concurrency.saturating_sub(jobs.slots()));
        let count = (free + ahead).saturating_sub(taken).min(most).min(cap);
        if count == 0 {
            jobs.ring_at = jobs.ring_at.or(Some(ahead / 2));
        }
        jobs.apart += count;
        drop(jobs);
        Promised { slots: Arc::clone(self), count, apart: true }
    }

    /// Hands jobs to the slots, in this order.
    pub(crate) fn push(self: &Arc<Self>, claimed: Vec<Claimed>) {
        let mut jobs = lock(&self.jobs);
        let more = claimed.len().min(self.concurrency.saturating_sub(jobs.slots()));
        let (soon, others): (Vec<_>, Vec<_>) = claimed.into_iter().map(Arc::new).partition(|job| job.begin_by.is_some());
        for job in soon.into_iter().rev() {
            jobs.queued.push_front(job);
        }
        jobs.queued.extend(others);
        for _ in 0..more {
            let slot = jobs.open();
            self.context.handlers.spawn(Arc::clone(self).work(slot));
        }
    }

    /// How many handlers run at a time.
    pub(crate) fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// How many handlers could begin now.
    pub(crate) fn free(&self) -> usize {
        let jobs = lock(&self.jobs);
        if jobs.queued.is_empty() && jobs.promised + jobs.apart == 0 { self.concurrency.saturating_sub(jobs.slots()) } else { 0 }
    }

    /// Releases a job that no slot has seen.
    pub(crate) async fn give_back(&self, job: &Claimed) {
        // Fails only when the worker has ended without waiting for this; then the job is recovered like that of a silent worker.
        let _ = self.context.settle.send(Settlement::release(job)).await;
    }

    /// Whether this job waits or runs here.
    pub(crate) fn holds(&self, id: JobId) -> bool {
        let mut jobs = lock(&self.jobs);
        jobs.running().any(|running| running.claimed.job.id == id) || jobs.queued.iter().any(|job| job.job.id == id)
    }

    /// Whether nothing is queued or running.
    pub(crate) fn is_idle(&self) -> bool {
        let mut jobs = lock(&self.jobs);
        jobs.queued.is_empty() && jobs.running().next().is_none()
    }

    /// Takes back what no slot has begun, to be released.
    pub(crate) fn take_queued(&self) -> Vec<Settlement> {
        lock(&self.jobs).queued.drain(..).map(|job| Settlement::release(&job)).collect()
    }

    /// Takes what these cover from among what no slot has begun.
    pub(super) fn take_covered(&self, queue: &str, paused: &Paused) -> Vec<Arc<Claimed>> {
        let mut jobs = lock(&self.jobs);
        let (covered, left) = jobs.queued.drain(..).partition(|job| paused.stops(queue, job.job.job_type, job.holding.gates()));
        jobs.queued = left;
        Vec::from(covered)
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
        let taken = jobs.running.iter_mut().filter_map(|slot| slot.take_if(|running| !running.judged));
        taken.map(|running| Settlement::release(&running.claimed)).collect()
    }

    /// Forgets everything: the lease is lost, and what is queued or running belongs to others.
    pub(crate) fn abandon(&self) {
        let mut jobs = lock(&self.jobs);
        let halt = std::mem::replace(&mut *lock(&self.halt), Arc::new(Halt::new(self.context.cancel_grace)));
        jobs.queued.clear();
        jobs.running.fill_with(|| None);
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
        let place = jobs.queued.iter().position(|job| job.job.token == token && job.job.id == id)?;
        jobs.queued.remove(place).map(|job| Settlement::cancel(&job))
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
            // A process that stood still for longer than its lease is about to fence itself, and then none of these are left.
            while self.life.is_over() && !lock(&self.jobs).queued.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let (next, late) = self.next(slot);
            if !late.is_empty() {
                // Beside the attempt, which may have to begin at once itself.
                tokio::spawn(Arc::clone(&self).give_back_late(late));
            }
            let Some(attempt) = next else { break };
            self.run(slot, attempt).await;
            self.finished.fetch_add(1, Relaxed);
        }
    }

    /// The slot's next job with what tells it to end, or the end of this slot; under one lock, so that a job handed over meanwhile finds either this
    /// slot or one that is free, and one that is abandoned meanwhile is told.
    /// Also what it is too late to begin.
    fn next(&self, slot: usize) -> (Option<Attempt>, Vec<Arc<Claimed>>) {
        let mut jobs = lock(&self.jobs);
        let (mut job, mut late) = (jobs.queued.pop_front(), Vec::new());
        while let Some(one) = job.take_if(|job| job.is_late()) {
            late.push(one);
            job = jobs.queued.pop_front();
        }
        if jobs.ring_at.is_some_and(|few| jobs.queued.len() <= few) {
            jobs.ring_at = None;
            self.context.bell.ring();
        }
        let Some(claimed) = job else {
            jobs.vacant.push(slot);
            return (None, late);
        };
        let since = Instant::now();
        jobs.running[slot] = Some(RunningJob { claimed: Arc::clone(&claimed), since, reported: false, judged: false, cancelling: false });
        (Some(Attempt { claimed, since, halt: Arc::clone(&lock(&self.halt)) }), late)
    }

    /// Releases what could not begin soon enough for the rate under which it was claimed.
    async fn give_back_late(self: Arc<Self>, late: Vec<Arc<Claimed>>) {
        tracing::debug!(jobs = late.len(), "too late to begin under their rate: given back");
        for job in late {
            self.give_back(&job).await;
        }
    }

    async fn run(&self, slot: usize, Attempt { claimed, since, halt }: Attempt) {
        let job = &claimed.job;
        let registration = self.context.registry.get(job.job_type);
        let ended = match registration {
            Some(registration) => run(registration, job, &self.context.shared, &halt, None, |failure| self.slow_down(job, &failure)).await,
            None => Ended::terminal("no handler for this job type in this worker"),
        };
        if self.begin_verdict(slot) {
            let (outcome, written) = (ended.outcome(), ended.is_written());
            let settlement = Settlement::of(&claimed, registration, ended, since.elapsed());
            // Not of a lease that is known to be lost: others have the job.
            if written || !settlement.over {
                self.context.teller.tell(job, outcome, &settlement.ending);
            }
            // Fails only when the worker has ended without waiting for this; then the job is recovered like that of a silent worker.
            let _ = self.context.settle.send(settlement).await;
            if lock(&self.jobs).running[slot].take().is_some_and(|running| running.cancelling) {
                halt.forget(job.token, job.id);
            }
        }
    }

    /// A handler was told to slow down: so is all that the limits of its type cover.
    fn slow_down(&self, job: &ClaimedJob, failure: &Failure) {
        if let FailureKind::SlowDown(wait) = failure.kind() {
            self.context.bell.slow_down(job.lane, wait);
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
    claimed: Arc<Claimed>,
    since: Instant,
    halt: Arc<Halt>,
}

/// Slots that are reserved for the jobs of a claim in the air, until this is dropped.
pub(crate) struct Promised {
    pub(crate) slots: Arc<Slots>,
    /// How many jobs they are.
    pub(crate) count: usize,
    /// For a claim under limits.
    apart: bool,
}

impl Promised {
    /// The same without any slot reserved: what comes is queued beyond what there is.
    pub(crate) fn without_slots(self) -> Self {
        Self { slots: Arc::clone(&self.slots), count: 0, apart: self.apart }
    }

    /// Hands over what the claim found.
    pub(crate) fn push(&self, claimed: Vec<Claimed>) {
        self.slots.push(claimed);
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        let mut jobs = lock(&self.slots.jobs);
        let promised = if self.apart { &mut jobs.apart } else { &mut jobs.promised };
        *promised = promised.saturating_sub(self.count);
    }
}

/// A lock that a panic elsewhere left poisoned is as good as any: nothing is half-written under these.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
