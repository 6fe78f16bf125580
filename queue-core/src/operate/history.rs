//! Statistics of past attempts: outcomes, durations and waiting times. Workers aggregate the statistics, so a query reads no jobs.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::{histogram::Histogram, rejection::explain};
use crate::{
    error::Error,
    results::{Queue, QueueConnection},
};

/// Time range, step and scope of a [`Queue::history`] query. The default is one row for the last hour, over all queues and types.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Queue, operate::HistoryRange};
/// use std::time::Duration;
///
/// let range = HistoryRange { step: Some(Duration::from_secs(60)), queue: Some("mail".into()), ..HistoryRange::default() };
/// for step in Queue::new(pool).history(&range).await? {
///     println!("{}: {} attempts", step.at, step.attempts());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct HistoryRange {
    /// Length of the time range, from ten seconds to 30 days. The range ends at the time of the query. Default: one hour.
    pub last: Duration,
    /// Length of a step, or `None` (the default) for a single step. The minimum is 10 seconds for ranges up to an hour, a minute for
    /// ranges up to a day, and an hour for longer ranges. The length is rounded up to a multiple of the minimum.
    pub step: Option<Duration>,
    /// Queue to include; `None` for all queues.
    pub queue: Option<String>,
    /// Current name of the job type to include; `None` for all types.
    pub job_type: Option<String>,
    /// Whether to return separate rows for each queue and type. If there would be more than 2,000 rows, only the busiest queues and types
    /// are returned. Default: false.
    pub apart: bool,
}

impl Default for HistoryRange {
    fn default() -> Self {
        Self { last: Duration::from_hours(1), step: None, queue: None, job_type: None, apart: false }
    }
}

/// Attempt statistics for one interval of the range.
///
/// Each attempt is counted in exactly one of `completed`, `retried`, `dead`, `cancelled`, `snoozed` and `released`. Attempts in
/// `timed_out`, `panicked` and `crashed` are included in these counts. `expired` and `lease_lost` are counted separately.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Queue, operate::HistoryRange};
///
/// for row in Queue::new(pool).history(&HistoryRange::default()).await? {
///     println!("{} completed, {} failed, {:.1} per second", row.completed, row.failed(), row.rate());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct AttemptStatistics {
    /// Start of the step, according to the database clock.
    pub at: DateTime<Utc>,
    /// Length of the step, or the duration so far if the step has not ended. Serialized as `seconds`.
    #[serde(rename = "seconds", serialize_with = "serialize_seconds")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub lasted: Duration,
    /// Name of the queue; `None` for all queues. `*` stands for the queues that are not stored by name, because the number of stored
    /// names is limited.
    pub queue: Option<String>,
    /// Name of the job type; `None` for all types. `*` stands for the types that are not stored by name.
    pub job_type: Option<String>,
    /// Number of attempts that completed their job.
    pub completed: u64,
    /// Number of failed attempts whose job is retried.
    pub retried: u64,
    /// Number of failed attempts after which the job became a dead letter.
    pub dead: u64,
    /// Number of attempts that ended because their job was cancelled.
    pub cancelled: u64,
    /// Number of attempts that snoozed, parked or restarted their job.
    pub snoozed: u64,
    /// Number of attempts that a worker aborted at shutdown, or did not start before the deadline set by a rate limit. Such attempts do
    /// not count against the job's maximum number of attempts.
    pub released: u64,
    /// Number of jobs that expired because no attempt started in time.
    pub expired: u64,
    /// Number of handler runs whose result was discarded, because the worker had lost the job's lease.
    pub lease_lost: u64,
    /// Number of attempts that exceeded the timeout of their job type.
    pub timed_out: u64,
    /// Number of attempts whose handler panicked.
    pub panicked: u64,
    /// Number of attempts whose process crashed.
    pub crashed: u64,
    /// Histogram of handler run times, without aborted handlers.
    pub run: Histogram,
    /// Histogram of waiting times, from when a job became ready until its handler started.
    pub start: Histogram,
    /// Number of combinations of queue and type that were omitted to limit the number of rows; the same in each row.
    pub left_out: u32,
}

impl AttemptStatistics {
    /// Returns the number of failed attempts, whether retried or not.
    pub fn failed(&self) -> u64 {
        self.retried + self.dead
    }

    /// Returns the number of all attempts.
    pub fn attempts(&self) -> u64 {
        self.completed + self.failed() + self.cancelled + self.snoozed + self.released
    }

    /// Returns the number of completed jobs per second.
    pub fn rate(&self) -> f64 {
        self.completed as f64 / self.lasted.as_secs_f64().max(1e-3)
    }
}

impl<C: QueueConnection> Queue<C> {
    /// Returns the outcomes of attempts by step, oldest step first. If [`apart`](HistoryRange::apart) is set, returns separate rows for
    /// each queue and type. Steps without attempts have no row.
    ///
    /// Workers write their statistics every ten seconds. A killed worker loses unwritten statistics. The query takes a few milliseconds
    /// regardless of the number of jobs, and returns at most 2,000 rows.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// use queue_core::{Queue, operate::HistoryRange};
    /// use std::time::Duration;
    ///
    /// let past = HistoryRange { last: Duration::from_hours(24), apart: true, ..HistoryRange::default() };
    /// for figures in Queue::new(&pool).history(&past).await? {
    ///     let p99 = figures.run.quantile(0.99).unwrap_or_default();
    ///     println!("{:?}: {} completed, {} failed, p99 {p99:?}", figures.job_type, figures.completed, figures.failed());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn history(&self, past: &HistoryRange) -> Result<Vec<AttemptStatistics>, Error> {
        let seconds = |duration: Duration| duration.as_secs_f64().clamp(1e-6, 1e9);
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/history.sql")))
            .bind(seconds(past.last))
            .bind(past.step.map(seconds))
            .bind(past.queue.as_deref())
            .bind(past.job_type.as_deref())
            .bind(past.apart);
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }
}

impl FromRow<'_, PgRow> for AttemptStatistics {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let count = |name| Ok::<_, sqlx::Error>(u64::try_from(row.try_get::<i64, _>(name)?).unwrap_or(0));
        let histogram = |name| {
            let digits: &str = row.try_get(name)?;
            Histogram::unpacked(digits).ok_or_else(|| sqlx::Error::Decode(format!("{name} is not a histogram").into()))
        };
        Ok(Self {
            at: row.try_get("at")?,
            lasted: Duration::try_from_secs_f64(row.try_get("seconds")?).unwrap_or_default(),
            queue: row.try_get("queue")?,
            job_type: row.try_get("job_type")?,
            completed: count("completed")?,
            retried: count("retried")?,
            dead: count("dead")?,
            cancelled: count("cancelled")?,
            snoozed: count("snoozed")?,
            released: count("released")?,
            expired: count("expired")?,
            lease_lost: count("lease_lost")?,
            timed_out: count("timed_out")?,
            panicked: count("panicked")?,
            crashed: count("crashed")?,
            run: histogram("run")?,
            start: histogram("start")?,
            left_out: u32::try_from(row.try_get::<i32, _>("left_out")?).unwrap_or(0),
        })
    }
}

fn serialize_seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    duration.as_secs_f64().serialize(serializer)
}
