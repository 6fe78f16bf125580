//! Schedules as stored, and the outcomes of their ticks.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use crate::define::{JobId, Timing};

/// Schedule as stored, without the payload of its jobs.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Queue, schedule};
///
/// let nightly = Queue::new(pool).schedule("nightly").find().await?;
/// println!("{} jobs are of type {}", nightly.name, nightly.job_type);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct ScheduleRecord {
    /// Name of the schedule.
    pub name: String,
    /// Job type name of the schedule's jobs.
    pub job_type: String,
    /// Cron expression, if the schedule has one.
    pub cron: Option<String>,
    /// Interval in seconds, if the schedule has no cron expression.
    pub every: Option<f64>,
    /// IANA name of the cron expression's time zone.
    pub tz: String,
    /// Handling of missed ticks: `coalesce`, `skip` or `catch_up(n)`.
    pub missed: String,
    /// Grace period in seconds. A tick that no worker handles within this period counts as missed.
    pub grace: f64,
    /// Handling of a tick while the job of an earlier tick has not finished: `skip`, `allow` or `queue`.
    pub overlap: String,
    /// Maximum jitter (random delay) of the schedule's jobs, in seconds.
    pub jitter: f64,
    /// Source of the schedule: `static` if workers declare it, otherwise `dynamic`.
    pub source: String,
    /// Time of the next tick; `None` until a worker has computed the time.
    pub next_at: Option<DateTime<Utc>>,
    /// Time of a tick that will be skipped, if any.
    pub skip_at: Option<DateTime<Utc>>,
    /// Time the schedule was paused; `None` if the schedule is not paused.
    pub paused_at: Option<DateTime<Utc>>,
    /// Time the schedule was withdrawn because workers no longer declare it. A withdrawn schedule has no ticks.
    pub withdrawn_at: Option<DateTime<Utc>>,
    /// Error that prevents further ticks of the schedule, if any.
    pub error: Option<String>,
    /// Outcome of the last tick; `None` before the first tick.
    pub last: Option<TickRecord>,
    /// Time of the query, according to the database clock.
    pub now: DateTime<Utc>,
}

/// Outcome of a tick.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Queue, schedule};
///
/// for tick in Queue::new(pool).schedule("nightly").ticks(10).await? {
///     println!("{}: {}", tick.tick, tick.outcome);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct TickRecord {
    /// Time of the tick. For a manual run, this is the time of the call.
    pub tick: DateTime<Utc>,
    /// Time the tick was handled, according to the database clock.
    pub fired_at: DateTime<Utc>,
    /// Id of the tick's job, if any.
    pub job: Option<JobId>,
    /// Outcome of the tick: `enqueued`, `kept`, `replaced`, `debounced`, `overlapped`, `skipped`, `missed`, `failed` or `run_now`. The
    /// outcomes `kept`, `replaced` and `debounced` result from the job's uniqueness key.
    pub outcome: String,
    /// Error of a failed tick. For an overlapped tick, this text identifies the job that had not finished.
    pub error: Option<String>,
}

impl ScheduleRecord {
    /// Returns the next ticks that will enqueue a job, at most `most`. Returns no ticks if the schedule is paused, withdrawn or stopped
    /// by an error.
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
                Some(tick) => Some(TickRecord {
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
