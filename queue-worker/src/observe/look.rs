//! One job, and lists of them.

use std::{collections::HashMap, time::Duration};

use queue_core::{AttemptFailure, JobId, JobRecord, JobState, Store, check_name};
use serde::Serialize;
use sqlx::{FromRow as _, PgConnection, Row as _};

use crate::error::Error;

/// Which jobs are meant. The default is all of them, 50 at a time.
///
/// ```
/// use queue_core::JobState;
/// use queue_worker::observe::Filter;
///
/// let dead_mails = Filter { state: Some(JobState::Dead), queue: Some("mail".into()), ..Filter::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// In this state only.
    pub state: Option<JobState>,
    /// In this queue only.
    pub queue: Option<String>,
    /// Of this job type only.
    pub job_type: Option<String>,
    /// How many jobs a list has at most. Default 50; more than [`Filter::MOST`] is taken for that.
    pub limit: u32,
    /// Enqueued before this job: where the last page ended.
    pub before: Option<JobId>,
    /// Not longer ago than this. What counts is when the job was completed, was cancelled or died; if it is not over, its enqueue. More than a
    /// hundred years are taken for that, here and below.
    pub since: Option<Duration>,
    /// At least so long ago, counted the same.
    pub older_than: Option<Duration>,
    /// With this text in the error of its last failed attempt. In lists: only dead letters.
    pub error: Option<String>,
    /// Whether lists show payloads and outputs. Default: they do not.
    pub payload: bool,
}

impl Filter {
    /// In seconds, as the statements take it.
    pub(super) fn since_seconds(&self) -> Option<f64> {
        self.since.map(seconds)
    }

    /// In seconds, as the statements take it.
    pub(super) fn age_seconds(&self) -> Option<f64> {
        self.older_than.map(seconds)
    }

    /// As the statements take it.
    pub(super) fn job_types(&self) -> Option<Vec<&str>> {
        self.job_type.as_deref().map(|job_type| vec![job_type])
    }

    /// The longest list.
    pub const MOST: u32 = 1000;

    /// Names outside the grammar match nothing, and are more likely a mistake than a question.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.queue.iter().try_for_each(|queue| check_name("queue name", queue))?;
        self.job_type.iter().try_for_each(|job_type| check_name("job type name", job_type))?;
        Ok(())
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            state: None,
            queue: None,
            job_type: None,
            limit: 50,
            before: None,
            since: None,
            older_than: None,
            error: None,
            payload: false,
        }
    }
}

fn seconds(age: Duration) -> f64 {
    age.min(Duration::from_hours(100 * 365 * 24)).as_secs_f64()
}

/// A part of a list, the newest jobs first.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Page {
    /// The jobs; fewer than asked for, even none, when few of those looked at were meant.
    pub jobs: Vec<JobRecord>,
    /// What [`Filter::before`] has to be for the next page; `None` when there is none.
    pub next: Option<JobId>,
}

/// A page looks at so many rows of the history, at most, for the jobs that are meant.
const LOOKED_AT: i32 = 50_000;

/// A record has so many failed attempts at most.
const FAILURES: i64 = 100;

/// The job `id` with its payload, output and failed attempts, wherever it is.
///
/// # Errors
/// The database's.
pub async fn find(connection: &mut PgConnection, store: Store, id: JobId) -> Result<Option<JobRecord>, Error> {
    let Some(mut job) = record(connection, store, id, true).await? else { return Ok(None) };
    // The history of failures is only ever added to, so it may be read a moment later.
    let failures = sqlx::query_as(store.sql(include_str!("../../../queue-core/sql/failures.sql"))).bind(id).bind(FAILURES);
    job.failures = failures.fetch_all(&mut *connection).await?;
    let said = sqlx::query_as(store.sql(include_str!("../../../queue-core/sql/progress_of.sql"))).bind(id).persistent(false);
    job.progress = said.fetch_optional(&mut *connection).await?;
    if job.error.is_none() && job.attempts > 0 && !matches!(job.state, JobState::Completed | JobState::Cancelled) {
        job.error = job.failures.last().map(|failure| failure.error.clone());
    }
    Ok(Some(job))
}

/// The job `id`; payload and output only if asked for, failed attempts never.
pub(super) async fn record(connection: &mut PgConnection, store: Store, id: JobId, whole: bool) -> sqlx::Result<Option<JobRecord>> {
    // Planned for each call, as all of an operator's statements are: a plan made while a table was empty is a bad one once it is full.
    let statement = sqlx::query_as(store.sql(include_str!("../../../queue-core/sql/find.sql"))).bind(id).bind(whole);
    statement.persistent(false).fetch_optional(connection).await
}

/// The jobs that `filter` means, without payloads unless it says so.
///
/// # Errors
/// [`queue_core::Error::InvalidName`] for a filter's name outside the grammar; the database's.
pub async fn list(connection: &mut PgConnection, store: Store, filter: &Filter) -> Result<Page, Error> {
    filter.check()?;
    let limit = filter.limit.clamp(1, Filter::MOST);
    let statement = sqlx::query(store.sql(include_str!("../../../queue-core/sql/list.sql")))
        .bind(filter.state.map(JobState::name))
        .bind(&filter.queue)
        .bind(filter.job_types())
        .bind(filter.before.map_or(i64::MAX, |before| before.0))
        .bind(limit as i32)
        .bind(&filter.error)
        .bind(filter.since_seconds())
        .bind(filter.age_seconds())
        .bind(filter.payload)
        .bind(None::<serde_json::Value>)
        .bind(LOOKED_AT);
    let rows = statement.persistent(false).fetch_all(connection).await?;
    let mut next = None;
    let mut jobs = Vec::with_capacity(rows.len());
    for row in &rows {
        next = row.try_get::<Option<JobId>, _>("horizon")?;
        if row.try_get::<Option<JobId>, _>("id")?.is_some() {
            jobs.push(JobRecord::from_row(row)?);
        }
    }
    if jobs.len() >= limit as usize {
        next = jobs.last().map(|job| job.id);
    }
    Ok(Page { jobs, next })
}

/// Gives each of these jobs its failed attempts, the latest 100 of each.
///
/// # Errors
/// The database's.
pub async fn add_failures(connection: &mut PgConnection, store: Store, jobs: &mut [JobRecord]) -> Result<(), Error> {
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let statement = sqlx::query(store.sql(include_str!("../../../queue-core/sql/failures_of.sql"))).bind(&ids).bind(FAILURES);
    let mut failures: HashMap<JobId, Vec<AttemptFailure>> = HashMap::new();
    for row in &statement.persistent(false).fetch_all(connection).await? {
        failures.entry(row.try_get("id")?).or_default().push(AttemptFailure::from_row(row)?);
    }
    for job in jobs {
        job.failures = failures.remove(&job.id).unwrap_or_default();
    }
    Ok(())
}
