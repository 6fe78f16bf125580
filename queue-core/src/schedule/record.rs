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

/// A schedule without the payload of its jobs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct ScheduleRecord {
    /// Name of the schedule.
    pub name: String,
    /// Type of its jobs.
    pub job_type: String,
    /// Cron expression, if it has one.
    pub cron: Option<String>,
    /// Interval in seconds, if it has no cron expression.
    pub every: Option<f64>,
    /// Time zone of the cron expression.
    pub tz: String,
    /// Handling of missed ticks: `coalesce`, `skip` or `catch_up(n)`.
    pub missed: String,
    /// Maximum lateness of a tick in seconds.
    pub grace: f64,
    /// Handling of overlaps: `skip`, `allow` or `queue`.
    pub overlap: String,
    /// Maximum random delay of its jobs in seconds.
    pub jitter: f64,
    /// `static` if workers declare it, otherwise `dynamic`.
    pub source: String,
    /// Next tick; `None` until a worker has computed it.
    pub next_at: Option<DateTime<Utc>>,
    /// Tick to skip.
    pub skip_at: Option<DateTime<Utc>>,
    /// Time since which it is paused.
    pub paused_at: Option<DateTime<Utc>>,
    /// Time since which no worker declares it any more, so that it has no ticks.
    pub withdrawn_at: Option<DateTime<Utc>>,
    /// Error that prevents its ticks.
    pub error: Option<String>,
    /// Outcome of its last tick.
    pub last: Option<Fire>,
    /// Time of this read by the database's clock.
    pub now: DateTime<Utc>,
}

/// Outcome of a tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Fire {
    /// The tick; for a manual run, the time of that.
    pub tick: DateTime<Utc>,
    /// Time at which a worker handled it.
    pub fired_at: DateTime<Utc>,
    /// Its job, if it has one.
    pub job: Option<JobId>,
    /// `enqueued`; `kept`, `replaced` or `debounced` due to its uniqueness key; `overlapped`, `skipped`, `missed`, `failed` or `run_now`.
    pub outcome: String,
    /// Error of a failed tick, or the job with which it overlapped.
    pub error: Option<String>,
}

impl ScheduleRecord {
    /// Returns its next ticks that will get a job, at most `most`: none while it is paused, withdrawn or in error.
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

/// Lists the schedules by name.
///
/// # Errors
/// Database errors.
pub async fn list(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<ScheduleRecord>, Error> {
    query_schedules(on, store, None).await
}

/// Returns the schedule of this name.
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

/// Returns the outcomes of the last ticks of a schedule, at most `most`, newest first. They are kept as long as the history of jobs.
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
