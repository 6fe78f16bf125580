//! Limits on running jobs and on job starts: values in force, free permits, and overrides by operators.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::rejection::explain;
use crate::{
    connect::IntoConnection,
    define::{JobId, Limit},
    error::Error,
    schema::{Store, check_name},
};

/// Values of a limit: maximum concurrency, and maximum rate of starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitFigures {
    /// Maximum number of jobs running at a time; `None` for no limit.
    pub concurrency: Option<u32>,
    /// Maximum number of starts within [`LimitFigures::period_ms`]; `None` for no limit.
    pub starts: Option<u32>,
    /// Period for `starts`, in milliseconds.
    pub period_ms: Option<u64>,
    /// Maximum number of starts in quick succession. `None` allows all `starts` of a period in quick succession.
    pub burst: Option<u32>,
}

/// Limit with its values, permits in use and waiting jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitStatus {
    /// Name of the limit: `type:send_email`, `queue:mail`, or a name that job types share.
    pub name: String,
    /// Values in force.
    #[serde(flatten)]
    pub figures: LimitFigures,
    /// Whether the values apply to each key separately; see [`limit_keys`].
    pub keyed: bool,
    /// Whether an operator has set the values. Otherwise, the values are declared in code.
    pub by_operator: bool,
    /// Values declared in code, if any.
    pub in_code: Option<LimitFigures>,
    /// Operator's reason, if one was given.
    pub reason: Option<String>,
    /// Time at which the values took effect, according to the database clock.
    pub since: DateTime<Utc>,
    /// Database role that set the values.
    pub set_by: String,
    /// Number of permits held by jobs in leases, including jobs that have not started yet.
    pub used: i64,
    /// Number of ready jobs that are waiting for the limit, counted up to [`LimitStatus::MOST`]. Only jobs stored under a name known to the
    /// limit are counted.
    pub waiting: i64,
    /// Whether more jobs are waiting than were counted.
    pub partial: bool,
    /// Milliseconds until the rate allows the next start, if the rate delays jobs.
    pub next_ms: Option<u64>,
    /// Number of living workers that may not know yet which jobs the limit covers. No job starts under the limit until these workers know.
    pub awaits: i64,
}

impl LimitStatus {
    /// Maximum number of ready jobs counted per limit.
    pub const MOST: i32 = 10_000;
}

/// Sets a limit for all workers. The limit overrides values from code until [`unset_limit`] is called. `type:send_email` and `queue:mail`
/// are the limits of a type and of a queue, whether or not code declares them. Any other name is a limit shared by types. The limit takes
/// effect with the next claim after the commit. Running jobs continue, even if they exceed the limit; a concurrency of 0 starts no job. An
/// existing limit by key stays a limit by key; [`Limit::keyed`] turns any other limit into a limit by key.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Limit, Store, operate};
///
/// let gentle = Limit::new().concurrency(2);
/// operate::set_limit(&pool, Store::default(), "stripe", gentle, Some("requested by Stripe")).await?;
/// operate::unset_limit(&pool, Store::default(), "stripe").await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::InvalidName`]; [`Error::OutOfRange`] for invalid values, or a reason of more than 1000 characters; database errors, including a
/// timeout after waiting five seconds for another open transaction that pauses something or sets a limit.
pub async fn set_limit(on: impl IntoConnection<'_>, store: Store, name: &str, limit: Limit, reason: Option<&str>) -> Result<(), Error> {
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
    let statement = sqlx::query(store.sql(include_str!("../../sql/set_limit.sql")))
        .bind(name)
        .bind(narrow(limit.concurrency))
        .bind(narrow(limit.rate.map(|(starts, _)| starts)))
        .bind(limit.rate.map(|(_, period)| i64::try_from(period.as_millis()).unwrap_or(i64::MAX)))
        .bind(narrow(limit.burst))
        .bind(reason)
        .bind(limit.keyed.then_some(true));
    let mut on = on.into_connection();
    statement.execute(&mut *on.acquire().await?).await.map(drop).map_err(|error| explain(error, store))
}

/// Removes an operator's override, so that the values from code, if any, apply again. Returns false if there is no override.
///
/// # Errors
/// Same as [`set_limit`].
pub async fn unset_limit(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<bool, Error> {
    check_limit_name(name)?;
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/unset_limit.sql"))).bind(name);
    let mut on = on.into_connection();
    statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Use of a limit by key by the jobs of one key: permits held, and waiting jobs.
#[derive(Clone, Debug, PartialEq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitKey {
    /// Line number of the key, as computed by `queue.line_id(key)` in SQL; 0 for jobs without a key.
    pub line: i64,
    /// Text of the key. Known only if the key has settings of its own, because jobs store only the line number.
    pub key: Option<String>,
    /// Concurrency of the key, as set by [`set_limit_key`].
    pub concurrency: Option<i32>,
    /// Number of permits held by jobs of the key.
    pub used: i64,
    /// Number of ready jobs of the key, among the last [`LimitStatus::MOST`] jobs that are waiting for the limit.
    pub waiting: i64,
    /// Whether more jobs are waiting than were counted.
    pub partial: bool,
    /// Milliseconds until the rate allows the next start, if the rate delays jobs.
    pub next_ms: Option<f64>,
}

impl LimitKey {
    /// Maximum number of keys returned.
    pub const MOST: i32 = 20;
}

/// Sets the concurrency of one key of a limit by key, which overrides the limit's own value. `None` removes the override. The change takes
/// effect with the next claim after the commit. Running jobs continue.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate};
///
/// operate::set_limit_key(&pool, Store::default(), "stripe", "acme", Some(10)).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::InvalidName`]; [`Error::OutOfRange`] for a concurrency of more than [`Limit::MOST`], or a key with NUL; database errors, as for
/// [`set_limit`].
pub async fn set_limit_key(
    on: impl IntoConnection<'_>,
    store: Store,
    name: &str,
    key: &str,
    concurrency: Option<u32>,
) -> Result<(), Error> {
    check_limit_name(name)?;
    if let Some(most) = concurrency.filter(|most| *most > Limit::MOST) {
        return Err(Error::OutOfRange { what: "the concurrency", value: most.to_string(), range: "0 to 1000000" });
    }
    if key.contains('\0') {
        return Err(Error::OutOfRange { what: "the key", value: key.escape_debug().take(32).collect(), range: "a text without NUL" });
    }
    let statement =
        sqlx::query(store.sql(include_str!("../../sql/set_limit_key.sql"))).bind(name).bind(key).bind(concurrency.map(u32::cast_signed));
    let mut on = on.into_connection();
    statement.execute(&mut *on.acquire().await?).await.map(drop).map_err(|error| explain(error, store))
}

/// Returns the keys of a limit by key that hold permits, have waiting jobs, or have a concurrency of their own. Returns at most
/// [`LimitKey::MOST`] keys, sorted by permits held, then by waiting jobs, largest first.
///
/// # Errors
/// [`Error::InvalidName`]; database errors.
pub async fn limit_keys(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<Vec<LimitKey>, Error> {
    check_limit_name(name)?;
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/limit_keys.sql")));
    let statement = statement.bind(name).bind(LimitKey::MOST).bind(LimitStatus::MOST);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Limit that keeps a ready job waiting.
#[derive(Clone, Debug, PartialEq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitWait {
    /// Name of the limit.
    pub name: String,
    /// Whether the values apply to each key separately.
    pub keyed: bool,
    /// Line number of the job's key; 0 for a job without a key.
    pub line: i64,
    /// Text of the job's key. Known only if the key has settings of its own, because jobs store only the line number.
    pub key: Option<String>,
    /// Number of permits held. For a limit by key, only permits of the job's key count.
    pub used: i64,
    /// Total number of permits.
    pub concurrency: Option<i32>,
    /// Milliseconds until the rate allows the next start, if the rate delays jobs.
    #[sqlx(rename = "wait_ms")]
    pub next_ms: Option<f64>,
    /// Number of living workers that may not know yet which jobs the limit covers. No job starts under the limit until these workers know.
    pub awaits: i64,
}

/// Returns the limits that currently have no permit for a ready job, sorted by name. A limit with a free permit is not included, even if it
/// is not the job's turn yet.
///
/// # Errors
/// Database errors.
pub async fn waits_for(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<Vec<LimitWait>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/waits_for.sql"))).bind(job);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Returns all limits with their values and use, sorted by name. Counts up to [`LimitStatus::MOST`] ready jobs per limit.
///
/// # Errors
/// Database errors.
pub async fn limits(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<LimitStatus>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/limits.sql"))).bind(LimitStatus::MOST);
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

fn check_limit_name(name: &str) -> Result<(), Error> {
    let of = name.strip_prefix("type:").or_else(|| name.strip_prefix("queue:")).unwrap_or(name);
    check_name("limit name", of)
}

impl LimitFigures {
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
        let in_code = LimitFigures::from_columns(row, ["code_concurrency", "code_starts", "code_period_ms", "code_burst"])?;
        Ok(Self {
            name: row.try_get("name")?,
            figures: LimitFigures::from_columns(row, ["concurrency", "starts", "period_ms", "burst"])?,
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
