//! What waits for the slots of a queue, and what runs in them.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use super::{gather::Gathering, line::Line};
use crate::{lanes::LeasedJob, run::running::RunningJob};

/// What waits and what runs.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) queued: VecDeque<Arc<LeasedJob>>,
    /// What waits for a fuller batch.
    pub(super) gathering: Gathering,
    /// Asked for by claims that are in the air.
    pub(super) promised: usize,
    /// Who wants slots.
    pub(super) line: Line,
    /// What it is too late to begin under its rate: to be given back.
    pub(super) late: Vec<Arc<LeasedJob>>,
    /// By slot, each of which is a task that runs one job at a time, or one batch, of which this is the first. A job that somebody has entered
    /// twice runs twice, and each of its verdicts is heard.
    pub(super) running: Vec<Option<RunningJob>>,
    /// The other jobs of a slot's batch.
    pub(super) beside: HashMap<usize, Vec<RunningJob>>,
    /// The slots that have no task.
    pub(super) vacant: Vec<usize>,
    /// The first in line was told that nothing is free. It is to be woken once so few are queued and a slot is free.
    pub(super) ring_at: Option<usize>,
}

impl Jobs {
    /// How many slots have a task.
    pub(super) fn slots(&self) -> usize {
        self.running.len() - self.vacant.len()
    }

    /// A slot for one more task.
    pub(super) fn open(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() - 1
        })
    }

    pub(super) fn running(&mut self) -> impl Iterator<Item = &mut RunningJob> {
        self.running.iter_mut().flatten().chain(self.beside.values_mut().flatten())
    }

    /// Queues the jobs of one claim in this order: those that begin under a rate before all others, but after those that came so before.
    pub(super) fn put(&mut self, claimed: Vec<LeasedJob>) {
        if claimed.first().is_some_and(|job| job.job.room_until.is_some()) {
            let before = self.queued.iter().take_while(|job| job.job.room_until.is_some()).count();
            let others = self.queued.split_off(before);
            self.queued.extend(claimed.into_iter().map(Arc::new).chain(others));
        } else {
            self.queued.extend(claimed.into_iter().map(Arc::new));
        }
    }

    /// The next one that may still begin.
    pub(super) fn pop(&mut self) -> Option<Arc<LeasedJob>> {
        loop {
            let job = self.queued.pop_front()?;
            if !job.has_no_room() {
                return Some(job);
            }
            self.late.push(job);
        }
    }

    /// Whether no job waits.
    pub(super) fn none_wait(&self) -> bool {
        self.queued.is_empty() && self.gathering.is_empty()
    }

    /// As [`Jobs::next`], without those that were to begin earlier, which come first.
    pub(super) fn next_in_time(&mut self, now: Instant) -> (Vec<Arc<LeasedJob>>, Option<Next>, bool) {
        let (mut over, mut has_room) = (Vec::new(), false);
        loop {
            let (next, more) = self.next(now);
            has_room |= more;
            let Some((first, others)) = next else { return (over, None, has_room) };
            let is_late = |job: &Arc<LeasedJob>| job.begin_by.is_some_and(|late| now >= late);
            let (late, batch): (Vec<_>, Vec<_>) = std::iter::once(first).chain(others).partition(is_late);
            over.extend(late);
            let mut batch = batch.into_iter();
            if let Some(first) = batch.next() {
                return (over, Some((first, batch.collect())), has_room);
            }
        }
    }

    /// What a slot is to run next: a job, and those that run in one batch with it. Single jobs and batches take turns. Also whether there is more
    /// room for batches than before, for which a claimer waits.
    pub(super) fn next(&mut self, now: Instant) -> (Option<Next>, bool) {
        let batch_first = std::mem::replace(&mut self.gathering.is_next, false);
        let batch = if batch_first || self.queued.is_empty() { self.gathering.take(now) } else { None };
        if let Some(batch) = batch {
            let mut batch = batch.into_iter();
            let left = self.gathering.jobs().count();
            let are_few = self.gathering.ring_at.take_if(|few| left <= *few).is_some();
            let has_room = self.gathering.wake_waiting() || are_few;
            return (batch.next().map(|first| (first, batch.collect())), has_room);
        }
        match self.pop() {
            Some(job) => {
                self.gathering.is_next = true;
                (Some((job, Vec::new())), false)
            }
            None => (None, self.gathering.wake_waiting()),
        }
    }
}

/// A job, and the others of its batch.
pub(super) type Next = (Arc<LeasedJob>, Vec<Arc<LeasedJob>>);
