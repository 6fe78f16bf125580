//! Schedules as they stand in the store, and what came of their ticks.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::refused::explain;
use crate::{
    connect::IntoConnection,
    define::{JobId, Timing},
    error::Error,
    schema::Store,
};

/// A schedule, without the payload of its jobs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct ScheduleRecord {
    /// Its name.
    pub name: String,
    /// The type of its jobs.
    pub job_type: String,
    /// Its expression, or
    pub cron: Option<String>,
    /// its interval, in seconds.
    pub every: Option<f64>,
    /// The zone of the expression.
    pub tz: String,
    /// What becomes of missed ticks: `coalesce`, `skip` or `catch_up(n)`.
    pub missed: String,
    /// How late a tick may be, in seconds.
    pub grace: f64,
    /// What becomes of overlaps: `skip`, `allow` or `queue`.
    pub overlap: String,
    /// How much its jobs are put off at most, in seconds.
    pub jitter: f64,
    /// `static` if workers declare it, else `dynamic`.
    pub source: String,
    /// Its next tick; none until a worker has computed it.
    pub next_at: Option<DateTime<Utc>>,
    /// The tick that is to be skipped.
    pub skip_at: Option<DateTime<Utc>>,
    /// Since when it is paused.
    pub paused_at: Option<DateTime<Utc>>,
    /// Since when no worker declares it any more, so that it has no ticks.
    pub withdrawn_at: Option<DateTime<Utc>>,
    /// Why it has no ticks.
    pub error: Option<String>,
    /// What came of its last tick.
    pub last: Option<Fire>,
    /// When this was read, by the database's clock.
    pub now: DateTime<Utc>,
}

/// What came of a tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Fire {
    /// The tick; of a run now, when that was.
    pub tick: DateTime<Utc>,
    /// When a worker saw to it.
    pub fired_at: DateTime<Utc>,
    /// Its job, if it has one.
    pub job: Option<JobId>,
    /// `enqueued`, `kept`, `replaced` or `debounced` by its uniqueness key, `overlapped`, `skipped`, `missed`, `failed` or `run_now`.
    pub outcome: String,
    /// Why it failed, or which job it overlapped with.
    pub error: Option<String>,
}

impl ScheduleRecord {
    /// Its next so many ticks that will have a job: none while it is paused, withdrawn or in error.
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

/// The schedules, by name.
///
/// # Errors
/// The database's.
pub async fn list(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<ScheduleRecord>, Error> {
    look(on, store, None).await
}

/// The schedule of this name.
///
/// # Errors
/// [`Error::NoSchedule`]; the database's.
pub async fn find(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<ScheduleRecord, Error> {
    look(on, store, Some(name)).await?.pop().ok_or_else(|| Error::NoSchedule { name: name.to_owned() })
}

async fn look(on: impl IntoConnection<'_>, store: Store, name: Option<&str>) -> Result<Vec<ScheduleRecord>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/schedules.sql"))).bind(name);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store, name.unwrap_or_default()))
}

/// What came of the last so many ticks of a schedule, the newest first. It is kept for as long as the history of jobs.
///
/// # Errors
/// The database's.
pub async fn fires(on: impl IntoConnection<'_>, store: Store, name: &str, most: u16) -> Result<Vec<Fire>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/fires.sql"))).bind(name).bind(i64::from(most));
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store, name))
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
