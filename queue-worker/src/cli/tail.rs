//! `tail` command: follows jobs, with one line per change, until the process receives a signal. With an id, follows one job until it is
//! finished.
//!
//! The command polls, so it puts no load on the workers. Changes between two polls are combined. For a job that starts and finishes between
//! two polls, only the end is shown.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chrono::Utc;
use queue_core::{
    JobId, JobRef, JobState, Queue, Store,
    operate::{Filter, JobRecord},
};
use sqlx::PgPool;

use super::{
    list::versioned_type, name_check::check_filter, open::open_for_reading, print, problem::Problem, selection::TailArgs,
    settings::Settings,
};
use crate::{escape, live::shutdown_signal};

/// Maximum number of newest jobs loaded per poll. Also the maximum number of running jobs loaded per poll.
const MAX_LISTED: u32 = 500;

/// Maximum number of tracked jobs.
const MAX_TRACKED: usize = 5_000;

/// Maximum number of tracked jobs that a poll loads individually, because they are neither among the newest nor among the running jobs.
const MAX_LOOKUPS: usize = 100;

/// Minimum pause between polls. After a slow poll, the pause is longer, so that polling takes at most a fifth of the time.
const MIN_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn tail(settings: &Settings, args: &TailArgs) -> Result<(), Problem> {
    let (database, store) = open_for_reading(settings).await?;
    check_filter(&database, store, &args.filter()).await?;
    let stop = shutdown_signal();
    tokio::pin!(stop);
    let mut tail =
        JobFollower { pool: database.pool(), store, only: args.id, filter: args.filter(), followed: HashMap::new(), newest: None };
    let mut shown = args.lines as usize;
    loop {
        let began = Instant::now();
        let changed = tail.poll(shown).await?;
        // After the first poll, only the newest `shown` jobs are printed. After later polls, all changed jobs are printed.
        let from = changed.len().saturating_sub(shown);
        if !print_jobs(&changed[from..], args.output.json)? || tail.is_finished() {
            break;
        }
        if shown < usize::MAX {
            tail.skip_running().await?;
            shown = usize::MAX;
        }
        tokio::select! {
            () = &mut stop => break,
            () = tokio::time::sleep(MIN_INTERVAL.max(4 * began.elapsed())) => {}
        }
    }
    database.close().await;
    Ok(())
}

/// Follows jobs, and keeps their last known states.
struct JobFollower<'a> {
    pool: &'a PgPool,
    store: Store,
    /// Single job to follow, or `None` to follow all jobs.
    only: Option<JobId>,
    filter: Filter,
    /// Last known states of the tracked jobs. Finished jobs that are not among the newest jobs are dropped.
    followed: HashMap<JobId, FollowedState>,
    /// Highest job id seen so far. An untracked job is new only if its id is higher.
    newest: Option<JobId>,
}

/// Job fields that are watched for changes. A line is printed whenever one of the fields changes.
#[derive(Clone, PartialEq, Eq)]
struct FollowedState {
    state: JobState,
    attempts: i16,
}

impl JobFollower<'_> {
    /// Returns the jobs that are new or have changed since the last poll, oldest first. Jobs older than the newest [`MAX_LISTED`] jobs
    /// may be omitted if at least `shown` jobs are returned.
    async fn poll(&mut self, shown: usize) -> Result<Vec<JobRecord>, Problem> {
        let mut found = match self.only {
            Some(id) => vec![JobRef::from_id(id).in_store(self.store).find_without_payload(self.pool).await?],
            None => self.load_jobs(shown).await?,
        };
        found.sort_by_key(|job| job.id);
        found.dedup_by_key(|job| job.id);
        found.retain(|job| self.is_change(job));
        if self.only.is_none() {
            self.prune();
        }
        Ok(found)
    }

    /// Tracks jobs that were already running at the start, so that a later poll reports these jobs only when they change.
    async fn skip_running(&mut self) -> Result<(), Problem> {
        if let (None, Some(newest)) = (self.only, self.newest) {
            let running = Filter { state: Some(JobState::Running), limit: MAX_LISTED, ..self.filter.clone() };
            for job in Queue::new(self.pool)
                .store(self.store)
                .jobs()
                .matching(&running)
                .list()
                .await?
                .jobs
                .into_iter()
                .filter(|job| job.id <= newest)
            {
                self.followed.entry(job.id).or_insert(FollowedState { state: job.state, attempts: job.attempts });
            }
        }
        Ok(())
    }

    /// Loads the newest jobs, the running jobs, and the other tracked jobs. If the list of the newest jobs has at least `shown` entries,
    /// loads no other jobs, so that the first output does not wait for further queries.
    async fn load_jobs(&self, shown: usize) -> Result<Vec<JobRecord>, Problem> {
        let newest = Filter { limit: MAX_LISTED, ..self.filter.clone() };
        let running = Filter { state: Some(JobState::Running), ..newest.clone() };
        let mut found = Queue::new(self.pool).store(self.store).jobs().matching(&newest).list().await?.jobs;
        if found.len() >= shown {
            return Ok(found);
        }
        found.extend(Queue::new(self.pool).store(self.store).jobs().matching(&running).list().await?.jobs);
        // At most `MAX_LOOKUPS` jobs are loaded individually. Jobs that were running at the last poll come first, because they have
        // probably ended, whereas waiting jobs may wait for a long time.
        let is_lost = |(id, seen): &(&JobId, &FollowedState)| !is_finished(seen.state) && !found.iter().any(|job| job.id == **id);
        let mut lost: Vec<(bool, JobId)> =
            self.followed.iter().filter(is_lost).map(|(id, seen)| (seen.state != JobState::Running, *id)).collect();
        lost.sort_unstable();
        for (_, id) in lost.into_iter().take(MAX_LOOKUPS) {
            match JobRef::from_id(id).in_store(self.store).find_without_payload(self.pool).await {
                Ok(job) => found.push(job),
                Err(queue_core::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    fn is_change(&mut self, job: &JobRecord) -> bool {
        let seen = FollowedState { state: job.state, attempts: job.attempts };
        let before = self.followed.insert(job.id, seen.clone());
        match before {
            Some(before) => before != seen,
            // An untracked job that is not newer than `newest` is reported if it is unfinished, because it has probably just started. If
            // it is finished, it is listed only because newer jobs were deleted, so it is not reported.
            None => self.newest.is_none_or(|newest| job.id > newest) || !is_finished(job.state),
        }
    }

    /// Drops finished jobs that are not among the newest jobs. Also drops the oldest jobs if more than [`MAX_TRACKED`] are tracked.
    fn prune(&mut self) {
        let mut ids: Vec<JobId> = self.followed.keys().copied().collect();
        ids.sort_unstable();
        self.newest = ids.last().copied().max(self.newest);
        let newest = ids[ids.len().saturating_sub(MAX_LISTED as usize)..].first().copied();
        self.followed.retain(|id, seen| newest.is_some_and(|newest| *id >= newest) || !is_finished(seen.state));
        let too_many = ids.len().saturating_sub(MAX_TRACKED);
        for id in &ids[..too_many] {
            self.followed.remove(id);
        }
    }

    /// Returns whether the followed job is finished. Always returns `false` if all jobs are followed.
    fn is_finished(&self) -> bool {
        self.only.and_then(|id| self.followed.get(&id)).is_some_and(|seen| is_finished(seen.state))
    }
}

fn is_finished(state: JobState) -> bool {
    matches!(state, JobState::Completed | JobState::Dead | JobState::Cancelled | JobState::Expired)
}

/// Prints one line per job. Returns `false` once the reader has closed stdout.
fn print_jobs(jobs: &[JobRecord], as_json: bool) -> Result<bool, Problem> {
    if as_json {
        return print::json_lines(jobs);
    }
    print::each_line(jobs.iter().map(line))
}

fn line(job: &JobRecord) -> String {
    let attempts = if job.attempts > 0 { format!(" {}/{}", job.attempts, job.max_attempts) } else { String::new() };
    let due = job.run_at.map(|at| format!(" due {}", print::time(at))).unwrap_or_default();
    let ran = job.ran.map(|ran| format!(" in {}", humantime::format_duration(ran))).unwrap_or_default();
    let error = job.error.as_deref().map(|error| format!(" {}", escape::short(error, 100))).unwrap_or_default();
    let what = versioned_type(&job.job_type, job.version);
    format!("{} {} {:<9} {}/{what}{attempts}{ran}{due}{error}", print::time(Utc::now()), job.id, job.state.name(), job.queue)
}
