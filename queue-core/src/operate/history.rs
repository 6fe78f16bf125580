//! History as statistics: outcomes and durations of attempts, and waiting times of their jobs. Workers aggregate them; no job is read.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::{histogram::Histogram, rejection::explain};
use crate::{connect::IntoConnection, error::Error, schema::Store};

/// Range, step and scope of [`history`]. The default is the last hour over all queues and types, in one row.
#[derive(Clone, Debug)]
pub struct Past {
    /// Duration to go back from now, from ten seconds to 30 days. Default: an hour.
    pub last: Duration,
    /// Length of a step, or `None` for a single one (the default). The minimum is 10 seconds for up to an hour, a minute for up to a day,
    /// an hour beyond. Other lengths are rounded up to a multiple of the minimum.
    pub step: Option<Duration>,
    /// Only this queue.
    pub queue: Option<String>,
    /// Only this job type, by its current name.
    pub job_type: Option<String>,
    /// Whether each queue and type has rows of its own; if these exceed 2,000 rows, only the busiest. Default: false.
    pub apart: bool,
}

impl Default for Past {
    fn default() -> Self {
        Self { last: Duration::from_hours(1), step: None, queue: None, job_type: None, apart: false }
    }
}

/// Outcomes of the attempts in one step.
///
/// Each attempt counts as one of `completed`, `retried`, `dead`, `cancelled`, `snoozed` and `released`. `timed_out`, `panicked` and
/// `crashed` attempts are among them; `expired` and `lease_lost` are not.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Figures {
    /// Start of the step, by the database's clock.
    pub at: DateTime<Utc>,
    /// Length of the step, or its duration so far. In JSON `seconds`.
    #[serde(rename = "seconds", serialize_with = "serialize_seconds")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub lasted: Duration,
    /// Queue; `None` for all, `*` for queues beyond the number that is stored by name.
    pub queue: Option<String>,
    /// Job type; `None` and `*` as for the queue.
    pub job_type: Option<String>,
    /// Attempts that completed their job.
    pub completed: u64,
    /// Failed attempts that are retried.
    pub retried: u64,
    /// Failed attempts after which the job became a dead letter.
    pub dead: u64,
    /// Attempts that ended because their job was cancelled.
    pub cancelled: u64,
    /// Attempts whose handler asked to run again later.
    pub snoozed: u64,
    /// Attempts that a worker aborted at its shutdown, or could not start in time under a rate limit. Not charged.
    pub released: u64,
    /// Jobs that expired because no attempt started in time.
    pub expired: u64,
    /// Handlers that ran in vain: their worker had lost its lease, and other workers had the job.
    pub lease_lost: u64,
    /// Attempts that exceeded their type's timeout.
    pub timed_out: u64,
    /// Attempts whose handler panicked.
    pub panicked: u64,
    /// Attempts that ended with their process.
    pub crashed: u64,
    /// Durations of handlers that were not aborted.
    pub run: Histogram,
    /// Times from a job becoming ready to the start of its handler.
    pub start: Histogram,
    /// Number of queues and types left out; the same in each row.
    pub left_out: u32,
}

impl Figures {
    /// Returns the number of failed attempts, retried or not.
    pub fn failed(&self) -> u64 {
        self.retried + self.dead
    }

    /// Returns the number of all attempts.
    pub fn attempts(&self) -> u64 {
        self.completed + self.failed() + self.cancelled + self.snoozed + self.released
    }

    /// Returns the completed jobs per second.
    pub fn rate(&self) -> f64 {
        self.completed as f64 / self.lasted.as_secs_f64().max(1e-3)
    }
}

/// Returns the outcomes of attempts by step, oldest first, and by queue and type if [`apart`](Past::apart) is set. Steps without attempts
/// have no row.
///
/// Workers write their statistics every ten seconds. A worker that is killed loses what it has not written. The query takes some
/// milliseconds regardless of the number of jobs, and returns at most 2,000 rows.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate::{self, Past}};
/// use std::time::Duration;
///
/// let past = Past { last: Duration::from_hours(24), apart: true, ..Past::default() };
/// for figures in operate::history(&pool, Store::default(), &past).await? {
///     let p99 = figures.run.quantile(0.99).unwrap_or_default();
///     println!("{:?}: {} completed, {} failed, p99 {p99:?}", figures.job_type, figures.completed, figures.failed());
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// Database errors.
pub async fn history(on: impl IntoConnection<'_>, store: Store, past: &Past) -> Result<Vec<Figures>, Error> {
    let mut on = on.into_connection();
    let seconds = |duration: Duration| duration.as_secs_f64().clamp(1e-6, 1e9);
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/history.sql")))
        .bind(seconds(past.last))
        .bind(past.step.map(seconds))
        .bind(past.queue.as_deref())
        .bind(past.job_type.as_deref())
        .bind(past.apart);
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

impl FromRow<'_, PgRow> for Figures {
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
