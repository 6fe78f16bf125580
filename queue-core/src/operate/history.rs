//! The past in figures: what came of attempts, how long they took, how long their jobs had been ready. Added up by workers; no job is looked at.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::{histogram::Histogram, refusal::explain};
use crate::{connect::IntoConnection, error::Error, schema::Store};

/// Which part of the past [`history`] tells of. By default the last hour of all queues and types together, in one row.
#[derive(Clone, Debug)]
pub struct Past {
    /// How far back, to now: at most 30 days, and at least ten seconds. Default an hour.
    pub last: Duration,
    /// In steps of so long, or in one (the default). A step is at least 10 s up to an hour back, a minute up to a day back, an hour beyond: a shorter
    /// one is taken for that, and of any other the next multiple of it.
    pub step: Option<Duration>,
    /// Of this queue only.
    pub queue: Option<String>,
    /// Of this job type only, by its present name.
    pub job_type: Option<String>,
    /// Each queue and type apart, the busiest if there are more than fit into 2,000 rows. Default together.
    pub apart: bool,
}

impl Default for Past {
    fn default() -> Self {
        Self { last: Duration::from_hours(1), step: None, queue: None, job_type: None, apart: false }
    }
}

/// What came of the attempts of one step.
///
/// Each attempt is one of `completed`, `retried`, `dead`, `cancelled`, `snoozed` and `released`. `timed_out`, `panicked` and `crashed` are among them;
/// `expired` and `lease_lost` are not.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Figures {
    /// When the step began, by the database's clock.
    pub at: DateTime<Utc>,
    /// How long it is, or has lasted so far.
    #[serde(rename = "seconds", serialize_with = "as_seconds")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub lasted: Duration,
    /// The queue; `None` for all, `*` for those that there was no room for by name.
    pub queue: Option<String>,
    /// The job type, in the same way.
    pub job_type: Option<String>,
    /// Attempts that completed their job.
    pub completed: u64,
    /// Attempts that failed, with another to come.
    pub retried: u64,
    /// Attempts that failed for good: dead letters.
    pub dead: u64,
    /// Attempts that ended because their job was cancelled.
    pub cancelled: u64,
    /// Attempts that asked to be called again later.
    pub snoozed: u64,
    /// Attempts that a worker broke off to end, or could not begin in time under a rate; uncharged.
    pub released: u64,
    /// Jobs that were over because nobody began them in time.
    pub expired: u64,
    /// Handlers that ran in vain: their worker had lost its lease, and others had the job.
    pub lease_lost: u64,
    /// Attempts that took longer than their type's timeout.
    pub timed_out: u64,
    /// Attempts whose handler panicked.
    pub panicked: u64,
    /// Attempts that ended with their process.
    pub crashed: u64,
    /// How long handlers ran that were not broken off.
    pub run: Histogram,
    /// How long jobs had been ready when their handlers began.
    pub start: Histogram,
    /// How many queues and types were left out; the same in each row.
    pub left_out: u32,
}

impl Figures {
    /// Attempts that failed, whether or not others follow.
    pub fn failed(&self) -> u64 {
        self.retried + self.dead
    }

    /// All attempts.
    pub fn attempts(&self) -> u64 {
        self.completed + self.failed() + self.cancelled + self.snoozed + self.released
    }

    /// Jobs completed a second.
    pub fn rate(&self) -> f64 {
        self.completed as f64 / self.lasted.as_secs_f64().max(1e-3)
    }
}

/// What came of attempts, by step from the oldest on, and by queue and type if they are [`apart`](Past::apart). A step without anything has no row.
///
/// Workers say every ten seconds what they have seen; what a worker that was killed had not said is lost. It costs some milliseconds, however
/// many jobs there were: at most 2,000 rows are returned.
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
/// The database's.
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
            Histogram::unpacked(digits).ok_or_else(|| sqlx::Error::Decode(format!("{name} is no histogram").into()))
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

fn as_seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    duration.as_secs_f64().serialize(serializer)
}
