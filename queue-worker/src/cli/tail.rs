//! `tail`: jobs as they come and change, a line each, until a signal; or one job, until it is over.
//!
//! It looks, and is told by nobody, so workers do nothing for it. What comes and goes between two looks is seen as it is then: of a short job
//! that is its end.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chrono::Utc;
use queue_core::{
    JobId, JobRef, JobState, Store,
    operate::{self, Filter, JobRecord},
};
use sqlx::PgPool;

use super::{chosen::Tail, known_queue::check_filter, list::of_version, open::open_to_look, print, problem::Problem, settings::Settings};
use crate::{inert, live::shutdown_signal};

/// So many of the newest jobs, and so many running ones, are seen in a look.
const SEEN: u32 = 500;

/// So many jobs that are not over are kept in mind.
const KEPT: usize = 5_000;

/// So many of those that are in no list are looked for in a look.
const LOST: usize = 100;

/// Between two looks, if they are quick: never more than a fifth of the time is spent on them.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) async fn tail(settings: &Settings, asked: &Tail) -> Result<(), Problem> {
    let (database, store) = open_to_look(settings).await?;
    check_filter(&database, store, &asked.filter()).await?;
    let stop = shutdown_signal();
    tokio::pin!(stop);
    let mut tail = Follow { pool: database.pool(), store, only: asked.id, filter: asked.filter(), known: HashMap::new(), newest: None };
    let mut shown = asked.lines as usize;
    loop {
        let began = Instant::now();
        let changed = tail.look(shown).await?;
        // Of what was there before it looked first, only so many.
        let from = changed.len().saturating_sub(shown);
        if !say(&changed[from..], asked.output.json)? || tail.is_over() {
            break;
        }
        if shown < usize::MAX {
            tail.meet_running().await?;
            shown = usize::MAX;
        }
        tokio::select! {
            () = &mut stop => break,
            () = tokio::time::sleep(PAUSE.max(4 * began.elapsed())) => {}
        }
    }
    database.close().await;
    Ok(())
}

/// What was seen of the jobs that are followed.
struct Follow<'a> {
    pool: &'a PgPool,
    store: Store,
    /// This job alone.
    only: Option<JobId>,
    filter: Filter,
    /// As they were last seen, but for those that were over then and are older than `newest`.
    known: HashMap<JobId, Seen>,
    /// Jobs up to this id, if they are not known, are none that came since.
    newest: Option<JobId>,
}

/// What makes a line when it changes.
#[derive(Clone, PartialEq, Eq)]
struct Seen {
    state: JobState,
    attempts: i16,
}

impl Follow<'_> {
    /// The jobs that have come or changed since the last look, the oldest first: all of them, or at least so many of the newest.
    async fn look(&mut self, shown: usize) -> Result<Vec<JobRecord>, Problem> {
        let mut found = match self.only {
            Some(id) => vec![JobRef::from_id(id).in_store(self.store).find_without_payload(self.pool).await?],
            None => self.listed(shown).await?,
        };
        found.sort_by_key(|job| job.id);
        found.dedup_by_key(|job| job.id);
        found.retain(|job| self.is_news(job));
        if self.only.is_none() {
            self.forget();
        }
        Ok(found)
    }

    /// Those that run already are no news when they are seen next.
    async fn meet_running(&mut self) -> Result<(), Problem> {
        if let (None, Some(newest)) = (self.only, self.newest) {
            let running = Filter { state: Some(JobState::Running), limit: SEEN, ..self.filter.clone() };
            for job in operate::list(self.pool, self.store, &running).await?.jobs.into_iter().filter(|job| job.id <= newest) {
                self.known.entry(job.id).or_insert(Seen { state: job.state, attempts: job.attempts });
            }
        }
        Ok(())
    }

    /// The newest jobs, those that run, and those known that are in neither list now. No more than the newest if those are as many as are shown:
    /// whoever has just come need not wait for the others, which are older.
    async fn listed(&self, shown: usize) -> Result<Vec<JobRecord>, Problem> {
        let newest = Filter { limit: SEEN, ..self.filter.clone() };
        let running = Filter { state: Some(JobState::Running), ..newest.clone() };
        let mut found = operate::list(self.pool, self.store, &newest).await?.jobs;
        if found.len() >= shown {
            return Ok(found);
        }
        found.extend(operate::list(self.pool, self.store, &running).await?.jobs);
        // What ran is likely to have ended; what waits may wait for long.
        let is_lost = |(id, seen): &(&JobId, &Seen)| !is_over(seen.state) && !found.iter().any(|job| job.id == **id);
        let mut lost: Vec<(bool, JobId)> =
            self.known.iter().filter(is_lost).map(|(id, seen)| (seen.state != JobState::Running, *id)).collect();
        lost.sort_unstable();
        for (_, id) in lost.into_iter().take(LOST) {
            match JobRef::from_id(id).in_store(self.store).find_without_payload(self.pool).await {
                Ok(job) => found.push(job),
                Err(queue_core::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    fn is_news(&mut self, job: &JobRecord) -> bool {
        let seen = Seen { state: job.state, attempts: job.attempts };
        let before = self.known.insert(job.id, seen.clone());
        match before {
            Some(before) => before != seen,
            // An older one that begins or ends is news as well; one that is merely listed now, for newer ones were deleted, is not.
            None => self.newest.is_none_or(|newest| job.id > newest) || !is_over(job.state),
        }
    }

    /// Keeps what may still change, and what would be taken for new.
    fn forget(&mut self) {
        let mut ids: Vec<JobId> = self.known.keys().copied().collect();
        ids.sort_unstable();
        self.newest = ids.last().copied().max(self.newest);
        let newest = ids[ids.len().saturating_sub(SEEN as usize)..].first().copied();
        self.known.retain(|id, seen| newest.is_some_and(|newest| *id >= newest) || !is_over(seen.state));
        let too_many = ids.len().saturating_sub(KEPT);
        for id in &ids[..too_many] {
            self.known.remove(id);
        }
    }

    /// Whether the one job is over.
    fn is_over(&self) -> bool {
        self.only.and_then(|id| self.known.get(&id)).is_some_and(|seen| is_over(seen.state))
    }
}

fn is_over(state: JobState) -> bool {
    matches!(state, JobState::Completed | JobState::Dead | JobState::Cancelled | JobState::Expired)
}

/// A line for each; false once nobody reads any more.
fn say(jobs: &[JobRecord], as_json: bool) -> Result<bool, Problem> {
    if as_json {
        return print::json_lines(jobs);
    }
    print::each_line(jobs.iter().map(line))
}

fn line(job: &JobRecord) -> String {
    let attempts = if job.attempts > 0 { format!(" {}/{}", job.attempts, job.max_attempts) } else { String::new() };
    let due = job.run_at.map(|at| format!(" due {}", print::time(at))).unwrap_or_default();
    let ran = job.ran.map(|ran| format!(" in {}", humantime::format_duration(ran))).unwrap_or_default();
    let error = job.error.as_deref().map(|error| format!(" {}", inert::short(error, 100))).unwrap_or_default();
    let what = of_version(&job.job_type, job.version);
    format!("{} {} {:<9} {}/{what}{attempts}{ran}{due}{error}", print::time(Utc::now()), job.id, job.state.name(), job.queue)
}
