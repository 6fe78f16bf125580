//! One job, and lists of them.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::{FromRow as _, PgConnection, Row as _};

use super::{
    filter::Filter,
    record::{AttemptFailure, JobRecord},
    refusal::explain,
};
use crate::{
    connect::{IntoConnection, JobRef},
    define::{JobId, JobState, UnknownState},
    error::Error,
    results::{JobStatus, Progress},
    schema::{Session, Store},
};

/// A part of a list, the newest jobs first.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Page {
    /// The jobs; fewer than asked for, even none, when few of those looked at were meant.
    pub jobs: Vec<JobRecord>,
    /// What [`Filter::before`] has to be for the next page; `None` when there is none.
    pub next: Option<JobId>,
}

/// The jobs of an ordering key, in its order.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct InLine {
    /// The jobs, the one whose turn it is first.
    pub jobs: Vec<JobRecord>,
    /// Whether more stand behind these.
    pub more: bool,
}

/// A page looks at so many rows of the history, at most, for the jobs that are meant.
const LOOKED_AT: i32 = 5_000;

/// A record has so many failed attempts at most.
const FAILURES: i64 = 100;

/// What can be asked of one job, whatever its type.
impl JobRef {
    /// The job with its payload, output and failed attempts, wherever it is.
    ///
    /// # Errors
    /// [`Error::NotFound`]; the database's.
    pub async fn find(&self, on: impl IntoConnection<'_>) -> Result<JobRecord, Error> {
        let mut on = on.into_connection();
        let found = find(&mut *on.acquire().await?, *self, true).await.map_err(|error| explain(error, self.store()))?;
        found.ok_or(Error::NotFound { job: self.id() })
    }

    /// As [`JobRef::find`], without payload and output: for whoever may not read those, or does not want to.
    ///
    /// # Errors
    /// As [`JobRef::find`].
    pub async fn find_without_payload(&self, on: impl IntoConnection<'_>) -> Result<JobRecord, Error> {
        let mut on = on.into_connection();
        let found = find(&mut *on.acquire().await?, *self, false).await.map_err(|error| explain(error, self.store()))?;
        found.ok_or(Error::NotFound { job: self.id() })
    }

    /// How the job is now, its output as the JSON that is stored; none if it returned nothing. Of a handle there is
    /// [`JobHandle::status`](crate::JobHandle::status), which has the output's type.
    ///
    /// # Errors
    /// [`Error::NotFound`]; the database's.
    pub async fn status(&self, on: impl IntoConnection<'_>) -> Result<JobStatus<Box<RawValue>>, Error> {
        let mut on = on.into_connection();
        let found = status(&mut *on.acquire().await?, *self).await.map_err(|error| explain(error, self.store()))?;
        found.ok_or(Error::NotFound { job: self.id() })
    }

    /// Where the job is now.
    ///
    /// # Errors
    /// As [`JobRef::status`].
    pub async fn state(&self, on: impl IntoConnection<'_>) -> Result<JobState, Error> {
        Ok(JobRef::status(self, on).await?.state)
    }
}

async fn find(connection: &mut PgConnection, job: JobRef, payload: bool) -> sqlx::Result<Option<JobRecord>> {
    let (id, store) = (job.id(), job.store());
    let statement = if payload { include_str!("../../sql/find.sql") } else { include_str!("../../sql/find_without.sql") };
    let statement = sqlx::query_as(store.sql(statement)).bind(id);
    let Some(mut found): Option<JobRecord> = statement.fetch_optional(&mut *connection).await? else { return Ok(None) };
    // The history of failures is only ever added to, so it may be read a moment later.
    let failures = sqlx::query_as(store.sql(include_str!("../../sql/failures.sql"))).bind(id).bind(FAILURES);
    found.failures = failures.fetch_all(&mut *connection).await?;
    let said = sqlx::query_as(store.sql(include_str!("../../sql/progress_of.sql"))).bind(id);
    let said: Option<Progress> = said.fetch_optional(&mut *connection).await?;
    found.progress = said.map(|said| said.at_the_end(found.finished_at.map(|_| found.state)));
    if found.error.is_none() && found.attempts > 0 && !matches!(found.state, JobState::Completed | JobState::Cancelled | JobState::Expired)
    {
        found.error = found.failures.last().map(|failure| failure.error.clone());
    }
    Ok(Some(found))
}

async fn status(connection: &mut PgConnection, job: JobRef) -> sqlx::Result<Option<JobStatus<Box<RawValue>>>> {
    let statement = sqlx::query(job.store().sql(include_str!("../../sql/status.sql"))).bind(job.id());
    let Some(row) = statement.fetch_optional(connection).await? else { return Ok(None) };
    let state: &str = row.try_get("state")?;
    let output: Option<String> = row.try_get("output")?;
    Ok(Some(JobStatus {
        state: state.parse().map_err(|error: UnknownState| sqlx::Error::Decode(error.into()))?,
        attempts: row.try_get("attempts")?,
        error: row.try_get("error")?,
        output: output.map(RawValue::from_string).transpose().map_err(|error| sqlx::Error::Decode(error.into()))?,
    }))
}

/// The jobs that `filter` means, the newest first, without payloads unless it says so.
///
/// # Errors
/// [`Error::InvalidName`] for a filter's name outside the grammar; the database's.
pub async fn list(on: impl IntoConnection<'_>, store: Store, filter: &Filter) -> Result<Page, Error> {
    filter.check()?;
    let mut session = Session::reading(on.into_connection()).await?;
    let found = page(session.connection(), store, filter).await;
    session.end(found).await.map_err(|error| explain(error, store))
}

/// The jobs of an ordering key of a queue that are not over, in its order, up to so many (1 to [`Filter::MOST`]): the one whose turn it is, or the dead
/// one that holds it up, and those behind it. [`InLine::more`] says whether that is all. What is over is not kept by its key. Without payloads.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let line = queue_core::operate::in_line(&pool, queue_core::Store::default(), "mail", "acme", 50).await?;
/// let others = line.jobs.len().saturating_sub(1);
/// println!("{:?} holds up {others} others{}", line.jobs.first().map(|job| job.id), if line.more { ", and more" } else { "" });
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::InvalidName`] for a queue outside the grammar; the database's.
pub async fn in_line(on: impl IntoConnection<'_>, store: Store, queue: &str, key: &str, most: u32) -> Result<InLine, Error> {
    Filter { queue: Some(queue.to_owned()), ..Filter::default() }.check()?;
    let (mut on, most) = (on.into_connection(), most.clamp(1, Filter::MOST));
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/in_line.sql"))).bind(queue).bind(key);
    // One more than is shown tells whether there are more.
    let statement = statement.bind(most.cast_signed() + 1);
    let mut jobs: Vec<JobRecord> = statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))?;
    let more = jobs.len() > most as usize;
    jobs.truncate(most as usize);
    Ok(InLine { jobs, more })
}

pub(super) async fn page(connection: &mut PgConnection, store: Store, filter: &Filter) -> sqlx::Result<Page> {
    let limit = filter.limit.clamp(1, Filter::MOST);
    let statement = if filter.payload { include_str!("../../sql/list.sql") } else { include_str!("../../sql/list_without.sql") };
    let statement = sqlx::query(store.sql(statement))
        .bind(filter.state.map(JobState::name))
        .bind(&filter.queue)
        .bind(filter.names())
        .bind(filter.before.map_or(i64::MAX, |before| before.0))
        .bind(limit as i32)
        .bind(&filter.error)
        .bind(filter.since_seconds())
        .bind(filter.age_seconds())
        .bind(filter.meta_json())
        .bind(LOOKED_AT);
    // Planned for each call: by a plan that was kept since the days were empty, a queue's completed jobs took more than 8 minutes on a connection
    // of a user's; by one made for the call it was 50 ms, in a store of a million jobs.
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
pub async fn add_failures(on: impl IntoConnection<'_>, store: Store, jobs: &mut [JobRecord]) -> Result<(), Error> {
    let mut session = Session::reading(on.into_connection()).await?;
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let statement = sqlx::query(store.sql(include_str!("../../sql/failures_of.sql"))).bind(&ids).bind(FAILURES);
    // Planned for each call: of 50 jobs it is 0.3 ms, and by a plan that was kept since the days were empty 150 ms on a connection of a user's.
    let rows = statement.persistent(false).fetch_all(session.connection()).await;
    let rows = session.end(rows).await.map_err(|error| explain(error, store))?;
    let mut failures: HashMap<JobId, Vec<AttemptFailure>> = HashMap::new();
    for row in &rows {
        failures.entry(row.try_get("id")?).or_default().push(AttemptFailure::from_row(row)?);
    }
    for job in jobs {
        job.failures = failures.remove(&job.id).unwrap_or_default();
    }
    Ok(())
}
