//! Schedules as stored, and the outcomes of their ticks.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::db_error::convert_error;
use crate::{
    connect::IntoConnection,
    define::{JobId, Timing},
    error::Error,
    schema::Store,
};

/// Schedule as stored, without the payload of its jobs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct ScheduleRecord {
    /// Name of the schedule.
    pub name: String,
    /// Name of the type of the schedule's jobs.
    pub job_type: String,
    /// Cron expression, if the schedule has one.
    pub cron: Option<String>,
    /// Interval in seconds, if the schedule has no cron expression.
    pub every: Option<f64>,
    /// Time zone of the cron expression.
    pub tz: String,
    /// Handling of missed ticks: `coalesce`, `skip` or `catch_up(n)`.
    pub missed: String,
    /// Maximum delay of a tick in seconds, after which the tick counts as missed.
    pub grace: f64,
    /// Handling of ticks while an earlier job has not finished: `skip`, `allow` or `queue`.
    pub overlap: String,
    /// Maximum random delay of the schedule's jobs, in seconds.
    pub jitter: f64,
    /// Source of the schedule: `static` if workers declare it, otherwise `dynamic`.
    pub source: String,
    /// Next tick; `None` until a worker has computed it.
    pub next_at: Option<DateTime<Utc>>,
    /// Tick that will be skipped, if any.
    pub skip_at: Option<DateTime<Utc>>,
    /// Time at which the schedule was paused; `None` if the schedule is not paused.
    pub paused_at: Option<DateTime<Utc>>,
    /// Time at which the schedule was withdrawn, because no worker declares it any more. A withdrawn schedule has no ticks.
    pub withdrawn_at: Option<DateTime<Utc>>,
    /// Error that prevents ticks of the schedule.
    pub error: Option<String>,
    /// Outcome of the last tick.
    pub last: Option<Fire>,
    /// Time of the query, according to the database clock.
    pub now: DateTime<Utc>,
}

/// Outcome of a tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Fire {
    /// Time of the tick. For a manual run, this is the time of the call.
    pub tick: DateTime<Utc>,
    /// Time at which a worker handled the tick.
    pub fired_at: DateTime<Utc>,
    /// Job of the tick, if there is one.
    pub job: Option<JobId>,
    /// Outcome of the tick: `enqueued`; `kept`, `replaced` or `debounced` because of the job's uniqueness key; `overlapped`, `skipped`,
    /// `missed`, `failed` or `run_now`.
    pub outcome: String,
    /// Error of a failed tick, or the job that had not finished at an overlapped tick.
    pub error: Option<String>,
}

impl ScheduleRecord {
    /// Returns the next ticks that will get a job, at most `most`. Returns no ticks while the schedule is paused, withdrawn or in error.
    pub fn next(&self, most: usize) -> Vec<DateTime<Utc>> {
        let every = self.every.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let Ok(timing) = Timing::new(self.cron.as_deref(), every, &self.tz) else { return Vec::new() };
        if self.paused_at.is_some() || self.withdrawn_at.is_some() || self.error.is_some() {
            return Vec::new();
        }
        let ahead = timing.next_ticks(self.next_at.unwrap_or(self.now), most + 1);
        self.next_at.into_iter().chain(ahead).filter(|tick| self.skip_at != Some(*tick)).take(most).collect()
    }
}

/// Returns all schedules, sorted by name.
///
/// # Errors
/// Database errors.
pub async fn list(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<ScheduleRecord>, Error> {
    query_schedules(on, store, None).await
}

/// Returns the schedule named `name`.
///
/// # Errors
/// [`Error::NoSchedule`]; database errors.
pub async fn find(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<ScheduleRecord, Error> {
    query_schedules(on, store, Some(name)).await?.pop().ok_or_else(|| Error::NoSchedule { name: name.to_owned() })
}

async fn query_schedules(on: impl IntoConnection<'_>, store: Store, name: Option<&str>) -> Result<Vec<ScheduleRecord>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/schedules.sql"))).bind(name);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| convert_error(error, store, name.unwrap_or_default()))
}

/// Returns the outcomes of a schedule's last ticks, newest first. Returns at most `most` outcomes, which are kept as long as the history of
/// jobs.
///
/// # Errors
/// Database errors.
pub async fn fires(on: impl IntoConnection<'_>, store: Store, name: &str, most: u16) -> Result<Vec<Fire>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/fires.sql"))).bind(name).bind(i64::from(most));
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| convert_error(error, store, name))
}

impl FromRow<'_, PgRow> for ScheduleRecord {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let tick: Option<DateTime<Utc>> = row.try_get("tick")?;
        Ok(Self {
            name: row.try_get("name")?,
            job_type: row.try_get("job_type")?,
            cron: row.try_get("cron")?,
            every: row.try_get("every")?,
            tz: row.try_get("tz")?,
            missed: row.try_get("missed")?,
            grace: row.try_get("grace")?,
            overlap: row.try_get("overlap")?,
            jitter: row.try_get("jitter")?,
            source: row.try_get("source")?,
            next_at: row.try_get("next_at")?,
            skip_at: row.try_get("skip_at")?,
            paused_at: row.try_get("paused_at")?,
            withdrawn_at: row.try_get("withdrawn_at")?,
            error: row.try_get("error")?,
            last: match tick {
                Some(tick) => Some(Fire {
                    tick,
                    fired_at: row.try_get("fired_at")?,
                    job: row.try_get("job")?,
                    outcome: row.try_get("outcome")?,
                    error: row.try_get("why")?,
                }),
                None => None,
            },
            now: row.try_get("now")?,
        })
    }
}
