//! Buffer of jobs that wait until a batch is ready, grouped by job type and batch size. The buffer decides when a batch is ready. The
//! slots run the batch.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{batch::most_together, options::Options};

use super::claimer_queue::ClaimerHandle;
use crate::lanes::LeasedJob;

/// Minimum batch wait time for retried jobs. Overrides a shorter wait time of the job type, so that jobs that failed together can be in
/// one batch again.
const MIN_RETRY_WAIT: Duration = Duration::from_millis(250);

/// Jobs of one queue that are buffered because their handlers take batches. The lock of the queue's [`SlotJobs`](super::jobs::SlotJobs)
/// protects the buffer.
#[derive(Default)]
pub(super) struct BatchBuffer {
    groups: Vec<BatchGroup>,
    /// Reservations of in-flight claims: the maximum number of jobs that the claims return, by job type.
    reservations: Vec<BatchReservation>,
    /// Claimers that found no space in the buffer.
    waiting: Vec<ClaimerHandle>,
    /// Number of buffered jobs at or below which the first claimer in the queue's claimer queue is woken. Set only while jobs finish fast
    /// enough to be prefetched.
    pub(super) wake_at: Option<usize>,
    /// Time at which the pending timer checks whether a batch is ready.
    pub(super) timer_at: Option<Instant>,
    /// Whether the next free slot prefers a batch to a single job.
    pub(super) is_next: bool,
}

/// Buffered jobs of one type with the same maximum batch size.
struct BatchGroup {
    job_type: &'static str,
    batch_size: usize,
    /// Jobs, each with the end of its waiting time. Sorted by this time.
    jobs: VecDeque<(Instant, Arc<LeasedJob>)>,
}

struct BatchReservation {
    job_type: &'static str,
    batch_size: usize,
    count: usize,
}

impl BatchGroup {
    fn is_ready(&self, now: Instant) -> bool {
        self.jobs.len() >= self.batch_size || self.jobs.front().is_some_and(|(until, _)| *until <= now)
    }

    /// Returns the number of ready batches in the group.
    fn ready(&self, now: Instant) -> usize {
        let full = self.jobs.len() / self.batch_size;
        full + usize::from(self.jobs.get(full * self.batch_size).is_some_and(|(until, _)| *until <= now))
    }
}

impl BatchBuffer {
    /// Buffers a job for a batch, or returns the job if it must run alone.
    pub(super) fn push(&mut self, job: LeasedJob, options: &Options, now: Instant) -> Option<LeasedJob> {
        let (number, crashes) = (job.job.number(), job.job.crashes.unsigned_abs().into());
        let batch_size = options.batch.map_or(1, |max| most_together(max, number, job.job.most_attempts(), crashes));
        // A job with a `start_deadline` has a rate permit. The permit expires soon, so the job does not wait for a batch.
        if batch_size < 2 || job.job.start_deadline.is_some() {
            return Some(job);
        }
        let wait = if number > 1 { options.batch_wait.max(MIN_RETRY_WAIT) } else { options.batch_wait };
        // A job with a deadline `begin_by` waits for at most half of the time until then, so that the job can still start.
        let until = job.begin_by.map_or(now + wait, |deadline| (now + wait).min(now + deadline.saturating_duration_since(now) / 2));
        let job = Arc::new(job);
        match self.groups.iter_mut().find(|group| group.job_type == options.name && group.batch_size == batch_size) {
            Some(group) => {
                let index = group.jobs.partition_point(|(other, _)| *other <= until);
                group.jobs.insert(index, (until, job));
            }
            None => self.groups.push(BatchGroup { job_type: options.name, batch_size, jobs: VecDeque::from([(until, job)]) }),
        }
        None
    }

    /// Takes a ready batch. If several groups have a ready batch, takes the one whose first job's waiting time ends first.
    pub(super) fn take(&mut self, now: Instant) -> Option<Vec<Arc<LeasedJob>>> {
        let ready = self.groups.iter().enumerate().filter(|(_, group)| group.is_ready(now));
        let (index, _) = ready.min_by_key(|(_, group)| group.jobs.front().map(|(until, _)| *until))?;
        let group = &mut self.groups[index];
        let count = group.batch_size.min(group.jobs.len());
        let batch = group.jobs.drain(..count).map(|(_, job)| job).collect();
        self.groups.retain(|group| !group.jobs.is_empty());
        Some(batch)
    }

    /// Returns the number of ready batches in all groups.
    pub(super) fn ready(&self, now: Instant) -> usize {
        self.groups.iter().map(|group| group.ready(now)).sum()
    }

    /// Returns the time at which the next batch becomes ready. Batches that are already ready do not count.
    pub(super) fn next_ready(&self, now: Instant) -> Option<Instant> {
        let not_ready = self.groups.iter().filter_map(|group| group.jobs.get(group.ready(now) * group.batch_size));
        not_ready.map(|(until, _)| *until).min()
    }

    /// Registers a claimer that found no space. The claimer is woken when space becomes free.
    pub(super) fn add_waiting(&mut self, claimer: &ClaimerHandle) {
        if !self.waiting.contains(claimer) {
            self.waiting.push(claimer.clone());
        }
    }

    /// Wakes the claimers that found no space. Returns whether a claimer was woken.
    pub(super) fn wake_claimers(&mut self) -> bool {
        let has_waiting = !self.waiting.is_empty();
        self.waiting.drain(..).for_each(|claimer| claimer.wake());
        has_waiting
    }

    /// Returns whether no job is buffered and no claimer is waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.groups.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = &Arc<LeasedJob>> {
        self.groups.iter().flat_map(|group| group.jobs.iter().map(|(_, job)| job))
    }

    /// Removes and returns the jobs for which `is_removed` returns true.
    pub(super) fn remove(&mut self, mut is_removed: impl FnMut(&LeasedJob) -> bool) -> Vec<Arc<LeasedJob>> {
        let mut removed = Vec::new();
        for group in &mut self.groups {
            let (matching, others): (VecDeque<_>, VecDeque<_>) = group.jobs.drain(..).partition(|(_, job)| is_removed(job));
            group.jobs = others;
            removed.extend(matching.into_iter().map(|(_, job)| job));
        }
        self.groups.retain(|group| !group.jobs.is_empty());
        removed
    }

    /// Returns the number of slots that the buffered and reserved jobs need.
    pub(super) fn slots(&self) -> usize {
        let buffered = self.groups.iter().map(|group| group.jobs.len().div_ceil(group.batch_size)).sum::<usize>();
        buffered + self.reservations.iter().map(|reservation| reservation.count.div_ceil(reservation.batch_size)).sum::<usize>()
    }

    /// Returns the number of buffered and reserved jobs of a type, and the number of jobs needed to fill the last batch of `batch_size`
    /// jobs.
    pub(super) fn count_of(&self, job_type: &str, batch_size: usize) -> (usize, usize) {
        let reservations = self.reservations.iter().filter(|reservation| reservation.job_type == job_type);
        let reserved: usize = reservations.map(|reservation| reservation.count).sum();
        let groups = self.groups.iter().filter(|group| group.job_type == job_type);
        let buffered: usize = groups.clone().map(|group| group.jobs.len()).sum();
        let of_size = reserved + groups.filter(|group| group.batch_size == batch_size).map(|group| group.jobs.len()).sum::<usize>();
        (buffered + reserved, of_size.div_ceil(batch_size) * batch_size - of_size)
    }

    pub(super) fn reserve(&mut self, job_type: &'static str, batch_size: usize, count: usize) {
        match self.reservations.iter_mut().find(|reservation| reservation.job_type == job_type) {
            Some(reservation) => reservation.count += count,
            None => self.reservations.push(BatchReservation { job_type, batch_size, count }),
        }
    }

    pub(super) fn release(&mut self, job_type: &str, count: usize) {
        if let Some(reservation) = self.reservations.iter_mut().find(|reservation| reservation.job_type == job_type) {
            reservation.count = reservation.count.saturating_sub(count);
        }
        self.reservations.retain(|reservation| reservation.count > 0);
    }
}
