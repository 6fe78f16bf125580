//! Capacities of queues, and their numbers of waiting jobs.

use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::rejection::explain;
use crate::{
    connect::IntoConnection,
    error::Error,
    schema::{Store, check_name},
};

/// Queue with a capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Capacity {
    /// Queue.
    pub queue: String,
    /// Number of waiting jobs at which an enqueue is rejected.
    pub capacity: u64,
    /// Number of waiting jobs: ready, scheduled and blocked. May exceed the capacity, since jobs that return to the queue are never
    /// rejected.
    pub waiting: u64,
    /// Whether there may be more, because [`capacities`] stops counting at a limit.
    pub partial: bool,
}

/// Sets the capacity of a queue to this number of waiting jobs, or removes it if `None`. Jobs that already wait stay. Only enqueues are
/// rejected, with [`Error::AtCapacity`]. Jobs that return to the queue (retries, released, recovered and requeued jobs) never are.
///
/// A transaction that began before this one committed may still enqueue under the old capacity.
///
/// # Errors
/// [`Error::InvalidName`]; [`Error::OutOfRange`] above 281,474,976,710,656; database errors.
pub async fn set_capacity(on: impl IntoConnection<'_>, store: Store, queue: &str, capacity: Option<u64>) -> Result<(), Error> {
    check_name("queue name", queue)?;
    let out_of_range =
        |capacity: u64| Error::OutOfRange { what: "the capacity", value: capacity.to_string(), range: "at most 281474976710656 jobs" };
    let checked =
        |capacity| i64::try_from(capacity).ok().filter(|capacity| *capacity <= MAX_CAPACITY).ok_or_else(|| out_of_range(capacity));
    let capacity = capacity.map(checked).transpose()?;
    let statement = sqlx::query(store.sql(include_str!("../../sql/set_capacity.sql"))).bind(queue).bind(capacity);
    let mut on = on.into_connection();
    statement.execute(&mut *on.acquire().await?).await.map(drop).map_err(|error| explain(error, store))
}

/// Maximum capacity. Keeps the database's arithmetic from overflowing.
const MAX_CAPACITY: i64 = 1 << 48;

/// Maximum number of waiting jobs counted per queue. Ten times as many are counted over all queues.
const MAX_COUNTED: i64 = 10_000;

/// Returns the queues with a capacity, by name. Counts up to 10,000 waiting jobs per queue, and ten times as many over all queues, which
/// takes some milliseconds. [`Capacity::partial`] marks counts that may be too low.
///
/// # Errors
/// Database errors.
pub async fn capacities(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Capacity>, Error> {
    query_capacities(on, store, Some(MAX_COUNTED)).await
}

/// Returns the same as [`capacities`], but counts every waiting job: about half a second per million jobs.
///
/// # Errors
/// Database errors.
pub async fn capacities_exactly(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Capacity>, Error> {
    query_capacities(on, store, None).await
}

async fn query_capacities(on: impl IntoConnection<'_>, store: Store, most: Option<i64>) -> Result<Vec<Capacity>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/capacities.sql"))).bind(most);
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Returns the existing queues by name: those with at least one job enqueued so far, and those with a capacity.
///
/// # Errors
/// Database errors.
pub async fn queues(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<String>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/queues.sql")));
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Returns whether this queue exists, as defined by [`queues`]. Costs less than listing all of them.
///
/// # Errors
/// Database errors.
pub async fn is_queue(on: impl IntoConnection<'_>, store: Store, queue: &str) -> Result<bool, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/is_queue.sql"))).bind(queue);
    statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

impl FromRow<'_, PgRow> for Capacity {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        // Neither is negative: the capacity by a CHECK, the other because it is a count.
        let number = |column| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(column)?.unsigned_abs());
        Ok(Self {
            queue: row.try_get("queue")?,
            capacity: number("capacity")?,
            waiting: number("waiting")?,
            partial: row.try_get("partial")?,
        })
    }
}
