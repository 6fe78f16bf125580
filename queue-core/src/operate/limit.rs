//! Concurrency limits and rate limits: current values, permits in use and operator overrides.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::rejection::explain;
use crate::{
    define::Limit,
    error::Error,
    results::{Queue, QueueConnection, QueueJob},
    schema::check_name,
};

/// Values of a limit: maximum concurrency and maximum start rate.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for limit in Queue::new(pool).limits().await? {
///     if let (Some(starts), Some(period)) = (limit.figures.starts, limit.figures.period()) {
///         println!("{}: at most {starts} starts per {period:?}", limit.name);
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitValues {
    /// Maximum number of jobs running at a time; `None` for no limit.
    pub concurrency: Option<u32>,
    /// Maximum number of starts within [`LimitValues::period_ms`]; `None` for no limit.
    pub starts: Option<u32>,
    /// Period of the start limit, in milliseconds; `None` if `starts` is `None`.
    pub period_ms: Option<u64>,
    /// Maximum number of starts in quick succession. `None` allows all `starts` of a period in quick succession.
    pub burst: Option<u32>,
}

/// Status of a limit: its values, permits in use and waiting jobs.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for limit in Queue::new(pool).limits().await? {
///     println!("{}: {} permits in use, {} jobs waiting", limit.name, limit.used, limit.waiting);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitStatus {
    /// Name of the limit, for example `type:send_email`, `queue:mail`, or a name that several job types share.
    pub name: String,
    /// Current values, set by an operator or declared in code.
    #[serde(flatten)]
    pub figures: LimitValues,
    /// Whether the values apply to each key separately; see [`Queue::limit_keys`].
    pub keyed: bool,
    /// Whether an operator has set the current values. Otherwise, the values are declared in code.
    pub by_operator: bool,
    /// Values declared in code, if any.
    pub in_code: Option<LimitValues>,
    /// Operator's reason for the current values, if any.
    pub reason: Option<String>,
    /// Time the values took effect, according to the database clock.
    pub since: DateTime<Utc>,
    /// Database role that set the current values.
    pub set_by: String,
    /// Number of permits held by leased jobs, including leased jobs that have not started yet.
    pub used: i64,
    /// Number of ready jobs that the limit covers, counted up to [`LimitStatus::MOST`].
    pub waiting: i64,
    /// Whether there are more ready jobs than were counted.
    pub partial: bool,
    /// Milliseconds until the start rate allows the next job to start; `None` if the start rate delays no job.
    pub next_ms: Option<u64>,
    /// Number of live workers that have not acknowledged the limit yet. No job starts under the limit until these workers have
    /// acknowledged it.
    pub awaits: i64,
}

impl LimitStatus {
    /// Maximum number of ready jobs counted per limit.
    pub const MOST: i32 = 10_000;
}

impl<C: QueueConnection> Queue<C> {
    /// Sets a limit for all workers. The limit overrides values declared in code until [`Queue::unset_limit`] is called. It takes effect
    /// with the next claim after the commit. Running jobs continue, even if they exceed the limit. With a concurrency of 0, no job
    /// starts.
    ///
    /// The name `type:send_email` limits a job type, and the name `queue:mail` limits a queue, even if the code declares no such limit.
    /// Any other name denotes a limit that several job types can share. If the existing limit applies per key, the new values also apply
    /// per key. Otherwise, they apply per key only if [`Limit::keyed`] is set.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// use queue_core::{Queue, options::Limit};
    ///
    /// let gentle = Limit::new().concurrency(2);
    /// Queue::new(&pool).set_limit("stripe", gentle, Some("requested by Stripe")).await?;
    /// Queue::new(&pool).unset_limit("stripe").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid name, and [`Error::OutOfRange`] for invalid values or a reason of more than 1000
    /// characters. Returns an error if the database query fails. The query times out after waiting five seconds for another open
    /// transaction that sets a pause or a limit.
    pub async fn set_limit(&self, name: &str, limit: Limit, reason: Option<&str>) -> Result<(), Error> {
        check_limit_name(name)?;
        if let Some((what, value, range)) = limit.out_of_range() {
            return Err(Error::OutOfRange { what, value, range });
        }
        if let Some(reason) = reason
            && (reason.chars().count() > 1000 || reason.contains('\0'))
        {
            let value = format!("{} characters", reason.chars().count());
            return Err(Error::OutOfRange { what: "the reason of a limit", value, range: "at most 1000 characters without NUL" });
        }
        let narrow = |count: Option<u32>| count.map(u32::cast_signed);
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/set_limit.sql")))
            .bind(name)
            .bind(narrow(limit.concurrency))
            .bind(narrow(limit.rate.map(|(starts, _)| starts)))
            .bind(limit.rate.map(|(_, period)| i64::try_from(period.as_millis()).unwrap_or(i64::MAX)))
            .bind(narrow(limit.burst))
            .bind(reason)
            .bind(limit.keyed.then_some(true));
        statement.execute(&mut *self.connection().await?).await.map(drop).map_err(|error| explain(error, self.store))
    }

    /// Removes an operator's override. The values declared in code, if any, apply again. Returns false if there is no override.
    ///
    /// # Errors
    /// Returns the errors of [`Queue::set_limit`].
    pub async fn unset_limit(&self, name: &str) -> Result<bool, Error> {
        check_limit_name(name)?;
        let statement = sqlx::query_scalar(self.store.sql(include_str!("../../sql/unset_limit.sql"))).bind(name);
        statement.fetch_one(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    /// Sets the maximum concurrency of one key of a per-key limit. The value overrides the limit's own concurrency. `None` removes the
    /// override. The change takes effect with the next claim after the commit. Running jobs continue.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// use queue_core::Queue;
    ///
    /// Queue::new(&pool).set_limit_key("stripe", "acme", Some(10)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid name, and [`Error::OutOfRange`] for a concurrency of more than [`Limit::MOST`] or a
    /// key that contains NUL. Returns an error if the database query fails or times out; see [`Queue::set_limit`].
    pub async fn set_limit_key(&self, name: &str, key: &str, concurrency: Option<u32>) -> Result<(), Error> {
        check_limit_name(name)?;
        if let Some(most) = concurrency.filter(|most| *most > Limit::MOST) {
            return Err(Error::OutOfRange { what: "the concurrency", value: most.to_string(), range: "0 to 1000000" });
        }
        if key.contains('\0') {
            return Err(Error::OutOfRange { what: "the key", value: key.escape_debug().take(32).collect(), range: "text without NUL" });
        }
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/set_limit_key.sql")))
            .bind(name)
            .bind(key)
            .bind(concurrency.map(u32::cast_signed));
        statement.execute(&mut *self.connection().await?).await.map(drop).map_err(|error| explain(error, self.store))
    }

    /// Returns the keys of a per-key limit that hold permits, have waiting jobs, or have a concurrency set by [`Queue::set_limit_key`].
    /// Returns at most [`LimitKey::MOST`] keys, sorted by permits held and then by waiting jobs, both in descending order.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid name, and an error if the database query fails.
    pub async fn limit_keys(&self, name: &str) -> Result<Vec<LimitKey>, Error> {
        check_limit_name(name)?;
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/limit_keys.sql")));
        let statement = statement.bind(name).bind(LimitKey::MOST).bind(LimitStatus::MOST);
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    /// Returns all limits with their values and usage, sorted by name. Counts up to [`LimitStatus::MOST`] ready jobs per limit.
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn limits(&self) -> Result<Vec<LimitStatus>, Error> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/limits.sql"))).bind(LimitStatus::MOST);
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }
}

/// Usage of one key of a per-key limit: permits held and waiting jobs.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for entry in Queue::new(pool).limit_keys("stripe").await? {
///     let key = entry.key.unwrap_or_else(|| "unknown key".to_owned());
///     println!("{key}: {} permits in use, {} jobs waiting", entry.used, entry.waiting);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitKey {
    /// Hash of the key, as computed by `queue.fair_id_of(key)` in SQL; 0 for jobs without a key.
    pub fair_id: i64,
    /// Text of the key. Jobs store only the hash, so the text is `None` unless an operator has set a limit or weight for the key.
    pub key: Option<String>,
    /// Maximum concurrency of the key, set by [`Queue::set_limit_key`]; `None` if the limit's own value applies.
    pub concurrency: Option<i32>,
    /// Number of permits held by jobs of the key.
    pub used: i64,
    /// Number of ready jobs of the key. At most [`LimitStatus::MOST`] ready jobs are counted for all keys of the limit together.
    pub waiting: i64,
    /// Whether there are more ready jobs than were counted.
    pub partial: bool,
    /// Milliseconds until the start rate allows the next job to start; `None` if the start rate delays no job.
    pub next_ms: Option<f64>,
}

impl LimitKey {
    /// Maximum number of keys that [`Queue::limit_keys`] returns.
    pub const MOST: i32 = 20;
}

/// Limit that keeps a ready job waiting.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for wait in Queue::new(pool).job(job).limit_waits().await? {
///     println!("waiting for the limit {}: {} permits in use", wait.name, wait.used);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitWait {
    /// Name of the limit.
    pub name: String,
    /// Whether the limit applies to each key separately.
    pub keyed: bool,
    /// Hash of the job's key; 0 for a job without a key.
    pub fair_id: i64,
    /// Text of the job's key. Jobs store only the hash, so the text is `None` unless an operator has set a limit or weight for the key.
    pub key: Option<String>,
    /// Number of permits held. For a per-key limit, only the permits held by jobs of the same key are counted.
    pub used: i64,
    /// Maximum number of permits; `None` if only the start rate is limited.
    pub concurrency: Option<i32>,
    /// Milliseconds until the start rate allows the next job to start; `None` if the start rate delays no job.
    #[sqlx(rename = "wait_ms")]
    pub next_ms: Option<f64>,
    /// Number of live workers that have not acknowledged the limit yet. No job starts under the limit until these workers have
    /// acknowledged it.
    pub awaits: i64,
}

impl<C: QueueConnection> QueueJob<'_, C> {
    /// Returns the limits that currently keep a ready job from starting, sorted by name. Such a limit has no free permit for the job,
    /// allows no further start yet, or has not been acknowledged by all live workers. A limit that allows the start is not included, even
    /// if another job will take the permit.
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn limit_waits(&self) -> Result<Vec<LimitWait>, Error> {
        let statement = sqlx::query_as(self.queue.store.sql(include_str!("../../sql/waits_for.sql"))).bind(self.id);
        statement.fetch_all(&mut *self.queue.connection().await?).await.map_err(|error| explain(error, self.queue.store))
    }
}

fn check_limit_name(name: &str) -> Result<(), Error> {
    let of = name.strip_prefix("type:").or_else(|| name.strip_prefix("queue:")).unwrap_or(name);
    check_name("limit name", of)
}

impl LimitValues {
    fn from_columns(row: &PgRow, [concurrency, starts, period, burst]: [&str; 4]) -> sqlx::Result<Self> {
        // CHECK constraints exclude negative values.
        let count = |column: &str| Ok::<_, sqlx::Error>(row.try_get::<Option<i32>, _>(column)?.map(i32::unsigned_abs));
        Ok(Self {
            concurrency: count(concurrency)?,
            starts: count(starts)?,
            period_ms: row.try_get::<Option<i64>, _>(period)?.map(i64::unsigned_abs),
            burst: count(burst)?,
        })
    }

    /// Returns `period_ms` as a duration.
    pub fn period(&self) -> Option<Duration> {
        self.period_ms.map(Duration::from_millis)
    }
}

impl FromRow<'_, PgRow> for LimitStatus {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let in_code = LimitValues::from_columns(row, ["code_concurrency", "code_starts", "code_period_ms", "code_burst"])?;
        Ok(Self {
            name: row.try_get("name")?,
            figures: LimitValues::from_columns(row, ["concurrency", "starts", "period_ms", "burst"])?,
            keyed: row.try_get("keyed")?,
            by_operator: row.try_get("by_operator")?,
            in_code: row.try_get::<bool, _>("in_code")?.then_some(in_code),
            reason: row.try_get("reason")?,
            since: row.try_get("since")?,
            set_by: row.try_get("set_by")?,
            used: row.try_get("used")?,
            waiting: row.try_get("waiting")?,
            partial: row.try_get("partial")?,
            next_ms: row.try_get::<Option<f64>, _>("next_ms")?.map(|ms| ms.max(0.0).ceil() as u64),
            awaits: row.try_get("awaits")?,
        })
    }
}
