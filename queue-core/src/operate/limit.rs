//! How many jobs may run at once, or begin in a time: what is in force, what there is room for, and an operator's word.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::refusal::explain;
use crate::{
    connect::IntoConnection,
    define::{JobId, Limit},
    error::Error,
    schema::{Store, check_name},
};

/// The figures of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitFigures {
    /// How many run at once; none is any number.
    pub concurrency: Option<u32>,
    /// How many begin within [`LimitFigures::period_ms`]; none is any number.
    pub starts: Option<u32>,
    /// The period of the rate, in ms.
    pub period_ms: Option<u64>,
    /// How many begin close together; none is all of the rate.
    pub burst: Option<u32>,
}

/// A limit, and what there is room for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitStatus {
    /// `type:send_email`, `queue:mail`, or the name that types share.
    pub name: String,
    /// What is in force.
    #[serde(flatten)]
    pub figures: LimitFigures,
    /// Whether the figures are those of each key: see [`limit_keys`].
    pub keyed: bool,
    /// Whether an operator set it. If not, code says so.
    pub by_operator: bool,
    /// What code says, if it says anything.
    pub in_code: Option<LimitFigures>,
    /// Why an operator set it, if that was said.
    pub reason: Option<String>,
    /// Since when it is in force, by the database's clock.
    pub since: DateTime<Utc>,
    /// The role of the database that said so.
    pub set_by: String,
    /// How many permits are held: jobs in leases, begun or about to begin.
    pub used: i64,
    /// How many ready jobs wait in what it covers, stored under the names that it knows, counted up to [`LimitStatus::MOST`].
    pub waiting: i64,
    /// Whether there are more.
    pub partial: bool,
    /// How many ms until the next one may begin, if a time must come first.
    pub next_ms: Option<u64>,
    /// How many living workers may not know yet what it covers: nothing begins under it before they do.
    pub awaits: i64,
}

impl LimitStatus {
    /// So many ready jobs are counted of each.
    pub const MOST: i32 = 10_000;
}

/// Sets a limit for all workers, whatever code says of it, until [`unset_limit`]: `type:send_email` and `queue:mail` are those of a type and of a queue,
/// whether or not code gives them one; any other name is that which types share. It takes effect with the next claim after the commit. What runs goes
/// on, be it more than the limit; a concurrency of 0 lets nothing begin. A limit by key stays one ([`Limit::keyed`] makes one of another).
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Limit, Store, operate};
///
/// let gentle = Limit::new().concurrency(2);
/// operate::set_limit(&pool, Store::default(), "stripe", gentle, Some("they asked us to")).await?;
/// operate::unset_limit(&pool, Store::default(), "stripe").await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::InvalidName`]; [`Error::OutOfRange`] for figures that no limit has, or a reason of more than 1000 characters; the database's, after five
/// seconds of waiting for another transaction that pauses something or sets a limit and stays open.
pub async fn set_limit(on: impl IntoConnection<'_>, store: Store, name: &str, limit: Limit, reason: Option<&str>) -> Result<(), Error> {
    check(name)?;
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

/// Takes away what an operator set, so that code's word holds again, if it has one; false if there is nothing of the kind.
///
/// # Errors
/// As [`set_limit`].
pub async fn unset_limit(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<bool, Error> {
    check(name)?;
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/unset_limit.sql"))).bind(name);
    let mut on = on.into_connection();
    statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// A key of a limit by key.
#[derive(Clone, Debug, PartialEq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitKey {
    /// The number of its line, `queue.line_id(key)` in SQL; 0 of jobs without a key.
    pub line: i64,
    /// The key itself, if somebody has said something of it: only its number is kept with jobs.
    pub key: Option<String>,
    /// What [`set_limit_key`] said of it.
    pub concurrency: Option<i32>,
    /// How many permits it holds.
    pub used: i64,
    /// How many ready jobs wait in its line, among the last [`LimitStatus::MOST`] that wait under the limit.
    pub waiting: i64,
    /// Whether more wait than were counted.
    pub partial: bool,
    /// How many ms until the next one may begin, if a time must come first.
    pub next_ms: Option<f64>,
}

impl LimitKey {
    /// So many keys are shown.
    pub const MOST: i32 = 20;
}

/// Lets so many jobs of this key run at once under a limit by key, whatever that says of each key, until it is set to `None`. It takes effect with the
/// next claim after the commit; what runs goes on.
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
/// [`Error::InvalidName`]; [`Error::OutOfRange`] for a concurrency of more than [`Limit::MOST`], or a key with NUL; the database's, as [`set_limit`].
pub async fn set_limit_key(
    on: impl IntoConnection<'_>,
    store: Store,
    name: &str,
    key: &str,
    concurrency: Option<u32>,
) -> Result<(), Error> {
    check(name)?;
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

/// The keys of a limit by key that hold permits, wait, or have a bound of their own: the first [`LimitKey::MOST`], those with the most permits first,
/// and then those with the most jobs waiting.
///
/// # Errors
/// [`Error::InvalidName`]; the database's.
pub async fn limit_keys(on: impl IntoConnection<'_>, store: Store, name: &str) -> Result<Vec<LimitKey>, Error> {
    check(name)?;
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/limit_keys.sql")));
    let statement = statement.bind(name).bind(LimitKey::MOST).bind(LimitStatus::MOST);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// What a ready job waits for under a limit.
#[derive(Clone, Debug, PartialEq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct LimitWait {
    /// The limit.
    pub name: String,
    /// Whether its figures are those of each key.
    pub keyed: bool,
    /// The number of the job's line, 0 if it has no key.
    pub line: i64,
    /// The job's key, if somebody has said something of it: only its number is kept with jobs.
    pub key: Option<String>,
    /// How many permits are held, of a limit by key by jobs of that key.
    pub used: i64,
    /// How many there are.
    pub concurrency: Option<i32>,
    /// How many ms until something may begin, if a time must come first.
    #[sqlx(rename = "wait_ms")]
    pub next_ms: Option<f64>,
    /// How many living workers may not know yet what the limit covers: nothing begins under it before they do.
    pub awaits: i64,
}

/// The limits that have no room for this job now, if it is ready, by name. One that has room for it, and whose turn it is not yet, is not among them.
///
/// # Errors
/// The database's.
pub async fn waits_for(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<Vec<LimitWait>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/waits_for.sql"))).bind(job);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// The limits, by name, with what is in force and what there is room for. Counts up to [`LimitStatus::MOST`] ready jobs of each.
///
/// # Errors
/// The database's.
pub async fn limits(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<LimitStatus>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/limits.sql"))).bind(LimitStatus::MOST);
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

fn check(name: &str) -> Result<(), Error> {
    let of = name.strip_prefix("type:").or_else(|| name.strip_prefix("queue:")).unwrap_or(name);
    check_name("limit name", of)
}

impl LimitFigures {
    fn read(row: &PgRow, [concurrency, starts, period, burst]: [&str; 4]) -> sqlx::Result<Self> {
        // None is negative, by CHECKs.
        let count = |column: &str| Ok::<_, sqlx::Error>(row.try_get::<Option<i32>, _>(column)?.map(i32::unsigned_abs));
        Ok(Self {
            concurrency: count(concurrency)?,
            starts: count(starts)?,
            period_ms: row.try_get::<Option<i64>, _>(period)?.map(i64::unsigned_abs),
            burst: count(burst)?,
        })
    }

    /// The period of the rate.
    pub fn period(&self) -> Option<Duration> {
        self.period_ms.map(Duration::from_millis)
    }
}

impl FromRow<'_, PgRow> for LimitStatus {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let in_code = LimitFigures::read(row, ["code_concurrency", "code_starts", "code_period_ms", "code_burst"])?;
        Ok(Self {
            name: row.try_get("name")?,
            figures: LimitFigures::read(row, ["concurrency", "starts", "period_ms", "burst"])?,
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
