//! Queries for one job and for lists of jobs.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::{FromRow as _, PgConnection, Row as _};

use super::{
    filter::Filter,
    record::{AttemptFailure, JobRecord},
    rejection::explain,
};
use crate::{
    connect::{IntoConnection, JobRef},
    define::{JobId, JobState, UnknownState},
    error::Error,
    results::{JobStatus, Progress, Queue, QueueConnection, QueueJob},
    schema::{Session, Store},
};

/// Page of a job list, newest jobs first.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Queue, operate::Filter};
///
/// let mut filter = Filter::default().job_type("send_email");
/// loop {
///     let page = Queue::new(pool).jobs().matching(&filter).list().await?;
///     page.jobs.iter().for_each(|job| println!("{}: {:?}", job.id, job.state));
///     let Some(next) = page.next else { break };
///     filter.before = Some(next);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Page {
    /// Jobs of the page. A page may have fewer jobs than requested, or none, because the number of rows read per page is limited.
    pub jobs: Vec<JobRecord>,
    /// Value of [`Filter::before`] for the next page; `None` on the last page.
    pub next: Option<JobId>,
}

/// Unfinished jobs of an ordering key, in the order in which they run.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// let entry = Queue::new(pool).jobs_of_key("mail", "acme", 50).await?;
/// for job in &entry.jobs {
///     println!("{}: {:?}", job.id, job.state);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct KeyQueueEntry {
    /// Jobs of the key. The first job is running or is the next to run, unless it is a dead letter that blocks the key.
    pub jobs: Vec<JobRecord>,
    /// Whether the key has more jobs than `jobs` contains.
    pub more: bool,
}

/// Maximum number of history rows read per page.
const MAX_HISTORY_ROWS: i32 = 5_000;

/// Maximum number of failed attempts loaded per job.
const MAX_FAILURES: i64 = 100;

/// Queries for one job of any type.
impl JobRef {
    /// Returns the job in any state, with its payload, output and failed attempts.
    ///
    /// # Errors
    /// Returns [`Error::NotFound`] if the job does not exist, and an error if the database query fails.
    pub async fn find(&self, on: impl IntoConnection<'_>) -> Result<JobRecord, Error> {
        let mut on = on.into_connection();
        let found = query_job(&mut *on.acquire().await?, *self, true).await.map_err(|error| explain(error, self.store()))?;
        found.ok_or(Error::NotFound { job: self.id() })
    }

    /// Returns the job as [`JobRef::find`] does, but without payload and output. Roles that may not read payloads can call this method.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::find`].
    pub async fn find_without_payload(&self, on: impl IntoConnection<'_>) -> Result<JobRecord, Error> {
        let mut on = on.into_connection();
        let found = query_job(&mut *on.acquire().await?, *self, false).await.map_err(|error| explain(error, self.store()))?;
        found.ok_or(Error::NotFound { job: self.id() })
    }

    /// Returns the job's current status, with the output as stored JSON. The output is `None` if the handler returned nothing. For a typed
    /// output, use [`JobHandle::status`](crate::JobHandle::status).
    ///
    /// # Errors
    /// Returns [`Error::NotFound`] if the job does not exist, and an error if the database query fails.
    pub async fn status(&self, on: impl IntoConnection<'_>) -> Result<JobStatus<Box<RawValue>>, Error> {
        let mut on = on.into_connection();
        let found = query_status(&mut *on.acquire().await?, *self).await.map_err(|error| explain(error, self.store()))?;
        found.ok_or(Error::NotFound { job: self.id() })
    }

    /// Returns the job's current state.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::status`].
    pub async fn state(&self, on: impl IntoConnection<'_>) -> Result<JobState, Error> {
        Ok(JobRef::status(self, on).await?.state)
    }
}

/// Queries for one job, on the queue's connection.
impl<C: QueueConnection> QueueJob<'_, C> {
    /// Returns the job with its payload, output and failed attempts; see [`JobRef::find`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::find`].
    pub async fn find(&self) -> Result<JobRecord, Error> {
        self.job_ref().find(self.queue.lend().await).await
    }

    /// Returns the job without payload and output; see [`JobRef::find_without_payload`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::find`].
    pub async fn find_without_payload(&self) -> Result<JobRecord, Error> {
        self.job_ref().find_without_payload(self.queue.lend().await).await
    }

    /// Returns the job's current status; see [`JobRef::status`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::status`].
    pub async fn status(&self) -> Result<JobStatus<Box<RawValue>>, Error> {
        self.job_ref().status(self.queue.lend().await).await
    }

    /// Returns the job's current state.
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::status`].
    pub async fn state(&self) -> Result<JobState, Error> {
        self.status().await.map(|status| status.state)
    }
}

async fn query_job(connection: &mut PgConnection, job: JobRef, payload: bool) -> sqlx::Result<Option<JobRecord>> {
    let (id, store) = (job.id(), job.store());
    let statement = if payload { include_str!("../../sql/find.sql") } else { include_str!("../../sql/find_without.sql") };
    let statement = sqlx::query_as(store.sql(statement)).bind(id);
    let Some(mut found): Option<JobRecord> = statement.fetch_optional(&mut *connection).await? else { return Ok(None) };
    // Failures are only appended, so a separate statement that reads them after the job misses none.
    let failures = sqlx::query_as(store.sql(include_str!("../../sql/failures.sql"))).bind(id).bind(MAX_FAILURES);
    found.failures = failures.fetch_all(&mut *connection).await?;
    let progress = sqlx::query_as(store.sql(include_str!("../../sql/progress_of.sql"))).bind(id);
    let progress: Option<Progress> = progress.fetch_optional(&mut *connection).await?;
    found.progress = progress.map(|progress| progress.with_final_state(found.finished_at.map(|_| found.state)));
    if found.error.is_none() && found.attempts > 0 && !matches!(found.state, JobState::Completed | JobState::Cancelled | JobState::Expired)
    {
        found.error = found.failures.last().map(|failure| failure.error.clone());
    }
    Ok(Some(found))
}

async fn query_status(connection: &mut PgConnection, job: JobRef) -> sqlx::Result<Option<JobStatus<Box<RawValue>>>> {
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

impl<C: QueueConnection> Queue<C> {
    /// Returns the unfinished jobs of an ordering key in a queue, in the order in which they run. Returns at most `most` jobs (1 to
    /// [`Filter::MOST`]). The first job is running or is the next to run, unless it is a dead letter that blocks the key.
    /// [`KeyQueueEntry::more`] reports whether further jobs follow. Finished jobs are not included because they are not stored by key.
    /// Payloads are not included.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// let line = queue_core::Queue::new(&pool).jobs_of_key("mail", "acme", 50).await?;
    /// let others = line.jobs.len().saturating_sub(1);
    /// println!("{:?} is first of the key, {others} behind it{}", line.jobs.first().map(|job| job.id), if line.more { ", and more" } else { "" });
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid queue name, and an error if the database query fails.
    pub async fn jobs_of_key(&self, queue: &str, key: &str, most: u32) -> Result<KeyQueueEntry, Error> {
        Filter { queue: Some(queue.to_owned()), ..Filter::default() }.check()?;
        let most = most.clamp(1, Filter::MOST);
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/key_queue.sql"))).bind(queue).bind(key);
        // One job more than requested is read, to find out whether further jobs follow.
        let statement = statement.bind(most.cast_signed() + 1);
        let mut jobs: Vec<JobRecord> =
            statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))?;
        let more = jobs.len() > most as usize;
        jobs.truncate(most as usize);
        Ok(KeyQueueEntry { jobs, more })
    }

    /// Loads the latest 100 failed attempts of each job into `jobs`.
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn add_failures(&self, jobs: &mut [JobRecord]) -> Result<(), Error> {
        let mut session = Session::begin_read_only(self.lend().await).await?;
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/failures_of.sql"))).bind(&ids).bind(MAX_FAILURES);
        // Planned for each call. A caller's connection may have cached a plan while the partitions were empty. With such a plan, the query
        // took 150 ms for 50 jobs. With a new plan, the query took 0.3 ms.
        let rows = statement.persistent(false).fetch_all(session.connection()).await;
        let rows = session.end(rows).await.map_err(|error| explain(error, self.store))?;
        let mut failures: HashMap<JobId, Vec<AttemptFailure>> = HashMap::new();
        for row in &rows {
            failures.entry(row.try_get("id")?).or_default().push(AttemptFailure::from_row(row)?);
        }
        for job in jobs {
            job.failures = failures.remove(&job.id).unwrap_or_default();
        }
        Ok(())
    }
}

pub(super) async fn query_page(connection: &mut PgConnection, store: Store, filter: &Filter) -> sqlx::Result<Page> {
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
        .bind(MAX_HISTORY_ROWS);
    // Planned for each call. A caller's connection may have cached a plan while the partitions were empty. With such a plan,
    // listing a queue's completed jobs took more than 8 minutes. With a new plan, the query took 50 ms in a store of a million jobs.
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
