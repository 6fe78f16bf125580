//! Crash quarantine: isolates jobs whose process crashed during an earlier attempt. Such jobs start when no other job runs on this
//! worker, or after a maximum wait.
//!
//! Each poll iteration includes a quarantine step. While quarantined jobs run, normal claims are paused. A pause lasts at most a few
//! seconds, and normal claims are paused at most half of the time.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{
    context::lock,
    poller::{BUSY_PROBE_INTERVAL, Poller},
};
use crate::{
    error::warn_throttled,
    lanes::{ClaimRequest, ClaimSource, ClaimedBatch, LaneQuota, LeasedJob, LimitRequest, order},
    live::bounded,
};

/// Maximum duration of a pause of normal claims. The pause includes the wait for other running jobs and the run of the quarantined jobs.
const MAX_QUIET: Duration = Duration::from_secs(3);

/// Maximum time to wait for other running jobs. After this time, quarantined jobs start concurrently with these jobs. A job that would
/// become a dead letter after one more crash waits longer, up to [`MAX_WAIT`].
const MAX_DRAIN: Duration = Duration::from_secs(2);

/// Maximum waiting time of a job that would become a dead letter after one more crash. After this time, the job starts concurrently with
/// other jobs.
const MAX_WAIT: Duration = Duration::from_secs(15);

/// Expected time from the claim of quarantined jobs to their start. A rate limit counts the jobs as started at the end of this time.
const START_SLACK: Duration = Duration::from_millis(50);

impl Poller {
    /// Runs quarantined jobs while no other job runs. Returns whether normal claims may continue.
    ///
    /// Jobs with one crash run together, because two more crashes are needed to make any of them a dead letter. Jobs with more crashes run
    /// one at a time, so that a crash is attributed to the right job.
    pub(super) async fn run_quarantined(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        let now = Instant::now();
        let Some(since) = self.quarantine.quiet else {
            if now >= self.quarantine.next && self.find_quarantined().await? {
                self.quarantine.quiet = Some(now);
                self.context.is_quiet.store(true, SeqCst);
            }
            return Ok(!self.quarantine.is_quiet());
        };
        // A crash is charged to every job without a written verdict. The worker therefore counts as idle only if no such jobs exist.
        let (is_idle, quiet) = (self.context.held.count() == 0, now - since);
        if quiet < MAX_QUIET && !is_idle && (quiet < MAX_DRAIN || self.quarantine.any_running()) {
            return Ok(false);
        }
        // New quarantined jobs never start while earlier quarantined jobs are running. Otherwise, a crash of a new job would also be
        // charged to the earlier jobs.
        if quiet >= MAX_QUIET || self.quarantine.any_running() || !self.start_quarantined(worker, is_idle).await? {
            self.quarantine.yield_to_others(BUSY_PROBE_INTERVAL);
            self.context.is_quiet.store(false, SeqCst);
            self.context.notifier.wake_claimers();
        }
        Ok(!self.quarantine.is_quiet())
    }

    /// Returns whether quarantined jobs are waiting and no earlier quarantined job is still running.
    async fn find_quarantined(&mut self) -> sqlx::Result<bool> {
        let solo: Vec<i64> = self.lanes.quarantined().map(|lane| lane.id).collect();
        if solo.is_empty() {
            // Quarantined jobs in paused lanes do not count as waiting.
            self.quarantine.waiting = None;
            return Ok(false);
        }
        self.quarantine.next = Instant::now() + BUSY_PROBE_INTERVAL;
        if self.count_quarantined(&solo, &vec![1; solo.len()]).await?.is_empty() {
            self.quarantine.waiting = None;
            return Ok(false);
        }
        self.quarantine.waiting.get_or_insert_with(Instant::now);
        Ok(!self.quarantine.any_running())
    }

    /// Claims and starts quarantined jobs. Returns whether any job started. A job that must run alone waits up to [`MAX_WAIT`] for other
    /// jobs to finish.
    async fn start_quarantined(&mut self, worker: Uuid, is_idle: bool) -> sqlx::Result<bool> {
        let (mut shares, alone) = self.next_quarantined().await?;
        // One claim covers only lanes under the same limits. Lanes under other limits wait for the next iteration.
        let first = shares.first().map_or(0, |share| share.lane);
        let limit_ids = |lane| self.lanes.groups.of(lane).map(|group| Arc::clone(&group.under.limit_ids));
        shares.retain(|share| limit_ids(share.lane) == limit_ids(first));
        let is_patient = self.quarantine.waiting.is_some_and(|since| since.elapsed() < MAX_WAIT);
        if shares.is_empty() || (alone && !is_idle && is_patient) {
            return Ok(false);
        }
        let most = shares.iter().map(|share| share.most).sum();
        let request =
            ClaimRequest::new(worker, shares, most, ClaimSource::Lanes { from_zero: true }, &mut self.lanes.track, &self.context.held);
        let ClaimedBatch { jobs: claimed, unread, .. } = self.claim_quarantined(request, first).await?;
        for job in &unread {
            if let Some(slots) = self.lanes.track.get(job.job.lane).and_then(|lane| self.context.queues.slots(&lane.queue)) {
                slots.give_back(job).await;
            }
        }
        if claimed.is_empty() || self.context.worker() != Some(worker) {
            return Ok(false);
        }
        // Another worker may have claimed the first jobs of a lane. If a remaining job must run alone while other jobs are running here,
        // all claimed jobs are released.
        if is_patient && !is_idle && claimed.iter().any(|job| job.job.crashes > 1) {
            for job in &claimed {
                if let Some(slots) = self.lanes.track.get(job.job.lane).and_then(|lane| self.context.queues.slots(&lane.queue)) {
                    slots.give_back(job).await;
                }
            }
            return Ok(false);
        }
        self.quarantine.waiting = Some(Instant::now());
        self.quarantine.turn = self.quarantine.turn.wrapping_add(1);
        self.start(claimed).await;
        Ok(true)
    }

    /// Claims quarantined jobs and waits for the result. The poller sends no other claim during the wait.
    async fn claim_quarantined(&mut self, request: ClaimRequest, lane: i64) -> sqlx::Result<ClaimedBatch> {
        let Some(group) = self.lanes.groups.of(lane) else {
            return request.send(&mut self.link, self.context.store).await.read(&mut self.lanes.track);
        };
        let (limit_ids, keyed, notifier) = (Arc::clone(&group.under.limit_ids), group.under.keyed, Arc::clone(&self.context.notifier));
        let request = request.with_limits(LimitRequest { limit_ids, keyed, freed: Vec::new(), notifier, slack: START_SLACK, floors: None });
        let mut link = lock(&self.context.permits).take();
        let answer = request.send(&mut link, self.context.store).await;
        lock(&self.context.permits).push(link);
        Ok(answer.read(&mut self.lanes.track).unwrap_or_else(|error| {
            warn_throttled(&error, "a claim under limits failed; only jobs under these limits wait");
            ClaimedBatch::default()
        }))
    }

    /// Returns the quotas of the next claim, and whether the claimed job must run alone. Each quota is the number of a lane's jobs that
    /// may run together. If no jobs may run together, returns at most one lane with a quota of one job.
    async fn next_quarantined(&mut self) -> sqlx::Result<(Vec<LaneQuota>, bool)> {
        let solo = order(self.lanes.quarantined(), self.quarantine.turn);
        let queues: HashMap<i64, Arc<str>> = solo.iter().map(|lane| (lane.id, lane.queue.clone())).collect();
        let mut free: HashMap<&str, usize> = HashMap::new();
        for queue in queues.values() {
            free.insert(queue, self.context.queues.slots(queue).map_or(0, |slots| slots.free().min(self.context.batch)));
        }
        let lanes: Vec<i64> = solo.into_iter().map(|lane| lane.id).filter(|lane| free[&*queues[lane]] > 0).collect();
        let most: Vec<i64> = lanes.iter().map(|lane| free[&*queues[lane]] as i64).collect();
        let found = self.count_quarantined(&lanes, &most).await?;
        let mut shares = Vec::new();
        for lane in &lanes {
            // Lanes of the same queue share the queue's free slots.
            let Some(free) = free.get_mut(&*queues[lane]) else { continue };
            let most = found.get(lane).map_or(0, |together| usize::try_from(*together).unwrap_or(0)).min(*free);
            *free -= most;
            if most > 0 {
                shares.push(LaneQuota { lane: *lane, most });
            }
        }
        if !shares.is_empty() {
            return Ok((shares, false));
        }
        let alone = lanes.iter().find(|lane| found.contains_key(lane)).map(|lane| LaneQuota { lane: *lane, most: 1 });
        Ok((alone.into_iter().collect(), true))
    }

    /// Returns the number of jobs that may run together for each of `lanes` that holds jobs. Counts at most `most` jobs per lane.
    async fn count_quarantined(&mut self, lanes: &[i64], most: &[i64]) -> sqlx::Result<HashMap<i64, i64>> {
        let statement = sqlx::query_as(self.context.store.sql(include_str!("../../sql/quarantined.sql"))).bind(lanes).bind(most);
        let found = bounded(statement.fetch_all(self.link.get().await?)).await;
        let mut found: HashMap<i64, i64> = self.link.note(found)?.into_iter().collect();
        // Removes lanes in which no job can get a permit for its key, because normal claims must not be paused for such jobs.
        for lane in found.keys().copied().collect::<Vec<_>>() {
            let Some(group) = self.lanes.groups.of(lane).filter(|group| group.under.keyed).cloned() else { continue };
            let statement = sqlx::query_scalar(self.context.store.sql(include_str!("../../sql/quarantined_by_key.sql")));
            let has_room = bounded(statement.bind(lane).bind(&group.under.limit_ids[..]).fetch_one(self.link.get().await?)).await;
            if !self.link.note(has_room)? {
                found.remove(&lane);
            }
        }
        Ok(found)
    }

    /// Passes claimed jobs to slots. If another worker claimed the first jobs of a lane, the remaining jobs may include a job that must run
    /// alone. In this case only the first remaining job starts, and the other jobs are released.
    async fn start(&mut self, claimed: Vec<LeasedJob>) {
        let alone = claimed.iter().any(|job| job.job.crashes > 1);
        self.quarantine.running.clear();
        for (nth, job) in claimed.into_iter().enumerate() {
            let Some(slots) = self.lanes.track.get(job.job.lane).and_then(|lane| self.context.queues.slots(&lane.queue)) else { continue };
            if alone && nth > 0 {
                slots.give_back(&job).await;
            } else {
                self.quarantine.running.push((Arc::clone(&slots), job.job.id));
                slots.push(vec![job]);
            }
        }
    }
}
