//! Where jobs run: each queue has its own slots, so that a slow queue takes none from a fast one.
//!
//! A slot is a task that runs one job after another until none is queued; an idle queue costs nothing. This file counts and keeps what runs;
//! how one attempt is run is `dispatch`'s.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use queue_core::{JobId, Registry, worker::Shared};
use tokio::{runtime::Handle, sync::mpsc::Sender};
use uuid::Uuid;

use crate::{
    bell::Bell,
    claim::Claimed,
    config::Config,
    dispatch::{Ended, Halt, attempt, judge, not_begun, release},
    settle::Settlement,
};

/// What all slots of a worker have in common.
pub(crate) struct Floor {
    pub(crate) registry: Registry,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settle: Sender<Settlement>,
    pub(crate) bell: Arc<Bell>,
    /// The runtime that handlers run on: the one that the worker was started on.
    pub(crate) handlers: Handle,
    /// How long a handler whose job was called off may go on.
    pub(crate) cancel_grace: Duration,
}

/// The slots of every queue that this worker serves.
pub(crate) struct Queues {
    floor: Arc<Floor>,
    /// Each named queue's concurrency; empty when any queue is served.
    named: HashMap<String, usize>,
    concurrency: usize,
    slots: Mutex<HashMap<String, Arc<Slots>>>,
}

impl Queues {
    pub(crate) fn new(floor: Floor, config: &Config) -> Self {
        let named = config.queues.iter().cloned().collect();
        Self { floor: Arc::new(floor), named, concurrency: config.concurrency, slots: Mutex::default() }
    }

    /// The slots of this queue; `None` if it is not served.
    pub(crate) fn slots(&self, queue: &str) -> Option<Arc<Slots>> {
        let mut slots = lock(&self.slots);
        if let Some(known) = slots.get(queue) {
            return Some(Arc::clone(known));
        }
        let concurrency = if self.named.is_empty() { self.concurrency } else { *self.named.get(queue)? };
        let fresh = Slots::new(&self.floor, concurrency);
        slots.insert(queue.to_owned(), Arc::clone(&fresh));
        Some(fresh)
    }

    /// Whether some queue runs one job at a time: its order is then to be seen, and two claims at once would mix it.
    pub(crate) fn keep_order(&self) -> bool {
        if self.named.is_empty() { self.concurrency == 1 } else { self.named.values().any(|concurrency| *concurrency == 1) }
    }

    /// All slots there are by now.
    pub(crate) fn all(&self) -> Vec<Arc<Slots>> {
        lock(&self.slots).values().cloned().collect()
    }

    /// The queues that are named, or `None` for any.
    pub(crate) fn named(&self) -> Option<Vec<String>> {
        (!self.named.is_empty()).then(|| self.named.keys().cloned().collect())
    }
}

/// The slots of one queue.
pub(crate) struct Slots {
    floor: Arc<Floor>,
    concurrency: usize,
    jobs: Mutex<Jobs>,
    finished: AtomicUsize,
    pace: Mutex<Pace>,
    halt: Mutex<Arc<Halt>>,
}

/// What waits and what runs.
#[derive(Default)]
struct Jobs {
    queued: VecDeque<Claimed>,
    /// Asked for by claims that are in the air.
    promised: usize,
    running: HashMap<JobId, Running>,
    /// Tasks alive; each runs one job at a time.
    slots: usize,
    /// The claim loop was told that there is no room. It is to be rung once so few are queued and a slot is free.
    ring_at: Option<usize>,
}

/// A handler at work, with what it takes to write a verdict without it.
struct Running {
    released: Settlement,
    job_type: &'static str,
    since: Instant,
    limit: Option<Duration>,
    reported: bool,
    /// Its handler has ended, and its verdict is on its way to the settle loop.
    judged: bool,
    /// Its handler was asked to end, for somebody wants it cancelled.
    called_off: bool,
}

impl Slots {
    /// Room for so many handlers at a time.
    fn new(floor: &Arc<Floor>, concurrency: usize) -> Arc<Self> {
        Arc::new(Self {
            floor: Arc::clone(floor),
            concurrency,
            jobs: Mutex::default(),
            finished: AtomicUsize::new(0),
            pace: Mutex::new(Pace::new(Instant::now())),
            halt: Mutex::new(Arc::new(Halt::new(floor.cancel_grace))),
        })
    }

    /// How many jobs to claim now: the free slots, and a tenth of a second's worth in advance. None while that is still half full, so that
    /// fast jobs travel in large batches and slow ones are not hoarded.
    pub(crate) fn demand(self: &Arc<Self>, most: usize) -> Promised {
        let ahead = lock(&self.pace).ahead(Instant::now(), self.finished.load(Relaxed)).min(4 * most);
        let mut jobs = lock(&self.jobs);
        let (coming, free) = (jobs.queued.len() + jobs.promised, self.concurrency.saturating_sub(jobs.slots));
        let full = coming > ahead / 2 || (coming >= free && ahead == 0);
        jobs.ring_at = full.then_some(ahead / 2);
        let count = if full { 0 } else { (free + ahead - coming).min(most) };
        jobs.promised += count;
        drop(jobs);
        Promised { slots: Arc::clone(self), count }
    }

    /// Hands jobs to the slots, in this order.
    pub(crate) fn push(self: &Arc<Self>, claimed: Vec<Claimed>) {
        let mut jobs = lock(&self.jobs);
        let more = claimed.len().min(self.concurrency.saturating_sub(jobs.slots));
        jobs.queued.extend(claimed);
        jobs.slots += more;
        for _ in 0..more {
            self.floor.handlers.spawn(Arc::clone(self).work());
        }
    }

    /// How many handlers could begin now.
    pub(crate) fn room(&self) -> usize {
        let jobs = lock(&self.jobs);
        if jobs.queued.is_empty() && jobs.promised == 0 { self.concurrency.saturating_sub(jobs.slots) } else { 0 }
    }

    /// Releases a job that no slot has seen.
    pub(crate) async fn give_back(&self, job: &Claimed) {
        // Fails only when the worker has ended without waiting for this; then the job is recovered like that of a silent worker.
        let _ = self.floor.settle.send(release(job)).await;
    }

    /// Whether this job waits or runs here.
    pub(crate) fn holds(&self, id: JobId) -> bool {
        let jobs = lock(&self.jobs);
        jobs.running.contains_key(&id) || jobs.queued.iter().any(|job| job.id == id)
    }

    /// Whether nothing is queued or running.
    pub(crate) fn is_idle(&self) -> bool {
        let jobs = lock(&self.jobs);
        jobs.queued.is_empty() && jobs.running.is_empty()
    }

    /// Takes back what no slot has begun, to be released.
    pub(crate) fn take_queued(&self) -> Vec<Settlement> {
        lock(&self.jobs).queued.drain(..).map(|job| release(&job)).collect()
    }

    /// Tells running handlers that they should end now.
    pub(crate) fn ask(&self) {
        lock(&self.halt).ask.cancel();
    }

    /// Drops running handlers at their next `await`; each is released.
    pub(crate) fn drop_running(&self) {
        lock(&self.halt).drop.cancel();
    }

    /// What runs all the same, because it never awaits: to be released without its slot.
    pub(crate) fn take_running(&self) -> Vec<Settlement> {
        lock(&self.jobs).running.extract_if(|_, running| !running.judged).map(|(_, running)| running.released).collect()
    }

    /// Forgets everything: the lease is lost, and what is queued or running belongs to others.
    pub(crate) fn abandon(&self) {
        let halt = std::mem::replace(&mut *lock(&self.halt), Arc::new(Halt::new(self.floor.cancel_grace)));
        let mut jobs = lock(&self.jobs);
        jobs.queued.clear();
        jobs.running.clear();
        drop(jobs);
        halt.ask.cancel();
        halt.drop.cancel();
    }

    /// Asks the handler of a job to end for which somebody has cancelled it; if it was not begun, returns its verdict.
    pub(crate) fn call_off(&self, token: Uuid, id: JobId) -> Option<Settlement> {
        let halt = Arc::clone(&lock(&self.halt));
        let mut jobs = lock(&self.jobs);
        if let Some(running) = jobs.running.get_mut(&id) {
            if running.released.token == token && !running.judged && !std::mem::replace(&mut running.called_off, true) {
                tracing::info!(job = %id, "cancelled while it runs: its handler is asked to end");
                halt.call_off(token, id);
            }
            return None;
        }
        let place = jobs.queued.iter().position(|job| job.token == token && job.id == id)?;
        jobs.queued.remove(place).map(|job| not_begun(&job))
    }

    /// Reports, once each, handlers that go on long after their timeout, which means that they never await.
    pub(crate) fn report_stuck(&self) {
        for running in lock(&self.jobs).running.values_mut() {
            if let Some(limit) = running.limit
                && running.since.elapsed() > limit + Duration::from_secs(5)
                && !std::mem::replace(&mut running.reported, true)
            {
                let (job, job_type, seconds) = (running.released.id, running.job_type, running.since.elapsed().as_secs());
                tracing::error!(%job, job_type, seconds, "handler is stuck: past its timeout and never awaiting; move blocking work to `spawn_blocking`");
            }
        }
    }

    async fn work(self: Arc<Self>) {
        while let Some(job) = self.next() {
            self.run(job).await;
            self.finished.fetch_add(1, Relaxed);
        }
    }

    /// The next job, or the end of this slot; under one lock, so that a job handed over meanwhile finds either this slot or room for another.
    fn next(&self) -> Option<Claimed> {
        let mut jobs = lock(&self.jobs);
        let job = jobs.queued.pop_front();
        if jobs.ring_at.is_some_and(|few| jobs.queued.len() <= few) {
            jobs.ring_at = None;
            self.floor.bell.ring();
        }
        let Some(job) = job else {
            jobs.slots -= 1;
            return None;
        };
        let limit = self.floor.registry.get(job.job_type).and_then(|known| known.options().timeout);
        let running = Running {
            released: release(&job),
            job_type: job.job_type,
            since: Instant::now(),
            limit,
            reported: false,
            judged: false,
            called_off: false,
        };
        jobs.running.insert(job.id, running);
        Some(job)
    }

    async fn run(&self, job: Claimed) {
        let since = Instant::now();
        let halt = Arc::clone(&lock(&self.halt));
        let registration = self.floor.registry.get(job.job_type);
        let ended = match registration {
            Some(registration) => attempt(registration, &job, &self.floor.shared, &halt).await,
            None => Ended::terminal("no handler for this job type in this worker"),
        };
        if self.begin_verdict(job.id, job.token) {
            let settlement = judge(registration, &job, ended, since.elapsed());
            // Fails only when the worker has ended without waiting for this; then the job is recovered like that of a silent worker.
            let _ = self.floor.settle.send(settlement).await;
            self.end_verdict(job.id, job.token, &halt);
        }
    }

    /// Not so when the job was taken from its slot meanwhile: abandoned, or released by a shutdown that could wait no longer.
    fn begin_verdict(&self, id: JobId, token: Uuid) -> bool {
        match lock(&self.jobs).running.get_mut(&id) {
            Some(running) if running.released.token == token => {
                running.judged = true;
                true
            }
            _ => false,
        }
    }

    fn end_verdict(&self, id: JobId, token: Uuid, halt: &Halt) {
        let mut jobs = lock(&self.jobs);
        if jobs.running.get(&id).is_some_and(|running| running.released.token == token)
            && jobs.running.remove(&id).is_some_and(|running| running.called_off)
        {
            halt.forget(token, id);
        }
    }
}

/// Room that is kept for the jobs of a claim in the air, until this is dropped.
pub(crate) struct Promised {
    slots: Arc<Slots>,
    /// How many jobs there is room for.
    pub(crate) count: usize,
}

impl Promised {
    /// The same without any room kept: what comes is queued beyond what there is.
    pub(crate) fn without_room(self) -> Self {
        Self { slots: Arc::clone(&self.slots), count: 0 }
    }

    /// Hands over what the claim found.
    pub(crate) fn push(&self, claimed: Vec<Claimed>) {
        self.slots.push(claimed);
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        let mut jobs = lock(&self.slots.jobs);
        jobs.promised = jobs.promised.saturating_sub(self.count);
    }
}

/// How fast jobs are finished here.
struct Pace {
    since: Instant,
    finished: usize,
    /// How many jobs were finished in the last tenth of a second.
    ahead: usize,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { since: now, finished: 0, ahead: 0 }
    }

    /// Measured over at least 5 ms; falls by no more than half at a time, so that one slow look does not empty the slots.
    fn ahead(&mut self, now: Instant, finished: usize) -> usize {
        let passed = now.saturating_duration_since(self.since);
        if passed >= Duration::from_millis(5) {
            let rate = (finished - self.finished) as f64 / passed.as_secs_f64();
            let measured = (rate * 0.1) as usize;
            let gone = if passed > Duration::from_secs(1) { 0 } else { self.ahead / 2 };
            *self = Self { since: now, finished, ahead: measured.max(gone) };
        }
        self.ahead
    }
}

/// A lock that a panic elsewhere left poisoned is as good as any: nothing is half-written under these.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_jobs_are_not_hoarded_and_fast_ones_travel_together() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!(pace.ahead(start + Duration::from_millis(10), 0), 0);
        assert_eq!(pace.ahead(start + Duration::from_millis(20), 100), 1000);
        assert_eq!(pace.ahead(start + Duration::from_secs(20), 101), 0);
    }
}
