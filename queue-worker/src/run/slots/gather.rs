//! Jobs that wait for a fuller batch: grouped by how many of them may run together. Decides when a batch is ripe; runs nothing.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{Options, most_together};

use super::line::Claimant;
use crate::lanes::LeasedJob;

/// Jobs that were tried before wait at least so long for those that failed with them, which are due at the same time.
const FOR_OTHERS: Duration = Duration::from_millis(250);

/// The jobs of one queue whose handlers take batches. An empty one is a word or two, and never locked by itself.
#[derive(Default)]
pub(super) struct Gathering {
    groups: Vec<Group>,
    /// Asked for by claims that are in the air.
    promised: Vec<Promise>,
    /// Who was told that there is no room for more.
    waiting: Vec<Claimant>,
    /// While jobs come fast: the first in line is woken once so few are left.
    pub(super) ring_at: Option<usize>,
    /// When somebody looks whether a batch is ripe.
    pub(super) watched: Option<Instant>,
    /// Whether a batch goes before a single job next time.
    pub(super) is_next: bool,
}

/// Jobs of one type of which equally many may run together.
struct Group {
    job_type: &'static str,
    most: usize,
    /// With the time by which each has waited long enough, and in that order.
    jobs: VecDeque<(Instant, Arc<LeasedJob>)>,
}

struct Promise {
    job_type: &'static str,
    most: usize,
    count: usize,
}

impl Group {
    fn is_ripe(&self, now: Instant) -> bool {
        self.jobs.len() >= self.most || self.jobs.front().is_some_and(|(until, _)| *until <= now)
    }

    /// How many batches are ripe.
    fn ripe(&self, now: Instant) -> usize {
        let full = self.jobs.len() / self.most;
        full + usize::from(self.jobs.get(full * self.most).is_some_and(|(until, _)| *until <= now))
    }
}

impl Gathering {
    /// Keeps a job for a batch, unless it is to run alone, which is returned.
    pub(super) fn put(&mut self, job: LeasedJob, options: &Options, now: Instant) -> Option<LeasedJob> {
        let (number, crashes) = (job.job.number(), job.job.crashes.unsigned_abs().into());
        let most = options.batch.map_or(1, |most| most_together(most, number, job.job.most_attempts(), crashes));
        // One whose start is counted for a moment only waits for no other.
        if most < 2 || job.job.room_until.is_some() {
            return Some(job);
        }
        let wait = if number > 1 { options.batch_wait.max(FOR_OTHERS) } else { options.batch_wait };
        // One that is to begin soon waits for half of that time, so that it does not wait in vain.
        let until = job.begin_by.map_or(now + wait, |late| (now + wait).min(now + late.saturating_duration_since(now) / 2));
        let job = Arc::new(job);
        match self.groups.iter_mut().find(|group| group.job_type == options.name && group.most == most) {
            Some(group) => {
                let place = group.jobs.partition_point(|(other, _)| *other <= until);
                group.jobs.insert(place, (until, job));
            }
            None => self.groups.push(Group { job_type: options.name, most, jobs: VecDeque::from([(until, job)]) }),
        }
        None
    }

    /// The batch that has waited longest of those that are ripe.
    pub(super) fn take(&mut self, now: Instant) -> Option<Vec<Arc<LeasedJob>>> {
        let ripe = self.groups.iter().enumerate().filter(|(_, group)| group.is_ripe(now));
        let (at, _) = ripe.min_by_key(|(_, group)| group.jobs.front().map(|(until, _)| *until))?;
        let group = &mut self.groups[at];
        let many = group.most.min(group.jobs.len());
        let batch = group.jobs.drain(..many).map(|(_, job)| job).collect();
        self.groups.retain(|group| !group.jobs.is_empty());
        Some(batch)
    }

    /// How many batches are ripe.
    pub(super) fn ripe(&self, now: Instant) -> usize {
        self.groups.iter().map(|group| group.ripe(now)).sum()
    }

    /// When the next batch is ripe that is not yet.
    pub(super) fn next_ripe(&self, now: Instant) -> Option<Instant> {
        let unripe = self.groups.iter().filter_map(|group| group.jobs.get(group.ripe(now) * group.most));
        unripe.map(|(until, _)| *until).min()
    }

    /// It found no room, and is to be woken once there is some.
    pub(super) fn waits(&mut self, who: &Claimant) {
        if !self.waiting.contains(who) {
            self.waiting.push(who.clone());
        }
    }

    /// Wakes those that found no room; returns whether there were any.
    pub(super) fn wake_waiting(&mut self) -> bool {
        let any = !self.waiting.is_empty();
        self.waiting.drain(..).for_each(|who| who.wake());
        any
    }

    /// Whether nothing waits, neither jobs nor claimers for room.
    pub(super) fn is_idle(&self) -> bool {
        self.groups.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = &Arc<LeasedJob>> {
        self.groups.iter().flat_map(|group| group.jobs.iter().map(|(_, job)| job))
    }

    /// Takes out those of which `wanted` says so.
    pub(super) fn remove(&mut self, mut wanted: impl FnMut(&LeasedJob) -> bool) -> Vec<Arc<LeasedJob>> {
        let mut removed = Vec::new();
        for group in &mut self.groups {
            let (taken, left): (VecDeque<_>, VecDeque<_>) = group.jobs.drain(..).partition(|(_, job)| wanted(job));
            group.jobs = left;
            removed.extend(taken.into_iter().map(|(_, job)| job));
        }
        self.groups.retain(|group| !group.jobs.is_empty());
        removed
    }

    /// How many slots these take, with those that are promised.
    pub(super) fn batches(&self) -> usize {
        let waiting = self.groups.iter().map(|group| group.jobs.len().div_ceil(group.most)).sum::<usize>();
        waiting + self.promised.iter().map(|promise| promise.count.div_ceil(promise.most)).sum::<usize>()
    }

    /// How many jobs of this type there are, with those that are promised; and how many more would fill what is begun.
    pub(super) fn held(&self, job_type: &str, most: usize) -> (usize, usize) {
        let promised: usize = self.promised.iter().filter(|promise| promise.job_type == job_type).map(|promise| promise.count).sum();
        let groups = self.groups.iter().filter(|group| group.job_type == job_type);
        let waiting: usize = groups.clone().map(|group| group.jobs.len()).sum();
        let begun = promised + groups.filter(|group| group.most == most).map(|group| group.jobs.len()).sum::<usize>();
        (waiting + promised, begun.div_ceil(most) * most - begun)
    }

    pub(super) fn promise(&mut self, job_type: &'static str, most: usize, count: usize) {
        match self.promised.iter_mut().find(|promise| promise.job_type == job_type) {
            Some(promise) => promise.count += count,
            None => self.promised.push(Promise { job_type, most, count }),
        }
    }

    pub(super) fn unpromise(&mut self, job_type: &str, count: usize) {
        if let Some(promise) = self.promised.iter_mut().find(|promise| promise.job_type == job_type) {
            promise.count = promise.count.saturating_sub(count);
        }
        self.promised.retain(|promise| promise.count > 0);
    }
}
