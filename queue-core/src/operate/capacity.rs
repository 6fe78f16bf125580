//! How many jobs may wait in a queue, and how many do.

use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::refusal::explain;
use crate::{
    connect::IntoConnection,
    error::Error,
    schema::{Store, check_name},
};

/// A queue with a capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Capacity {
    /// The queue.
    pub queue: String,
    /// How many jobs may wait in it before an enqueue is refused.
    pub capacity: u64,
    /// How many do: ready, scheduled and blocked. What comes back to a queue is not refused, so these may be more.
    pub waiting: u64,
    /// Whether there may be more: [`capacities`] counts so far and no further.
    pub partial: bool,
}

/// Gives a queue a capacity of so many waiting jobs, or takes it away if that is `None`. Jobs that wait already stay, and what comes back to the
/// queue (retries, released, recovered and requeued jobs) is never refused: only an enqueue is, with [`Error::AtCapacity`].
///
/// A transaction that began before this was committed may still enqueue as before.
///
/// # Errors
/// [`Error::InvalidName`]; [`Error::OutOfRange`] above 281,474,976,710,656; the database's.
pub async fn set_capacity(on: impl IntoConnection<'_>, store: Store, queue: &str, capacity: Option<u64>) -> Result<(), Error> {
    check_name("queue name", queue)?;
    let out =
        |capacity: u64| Error::OutOfRange { what: "the capacity", value: capacity.to_string(), range: "at most 281474976710656 jobs" };
    let checked = |capacity| i64::try_from(capacity).ok().filter(|capacity| *capacity <= MOST).ok_or_else(|| out(capacity));
    let capacity = capacity.map(checked).transpose()?;
    let statement = sqlx::query(store.sql(include_str!("../../sql/set_capacity.sql"))).bind(queue).bind(capacity);
    let mut on = on.into_connection();
    statement.execute(&mut *on.acquire().await?).await.map(drop).map_err(|error| explain(error, store))
}

/// The largest capacity: what the database reckons with it must not overflow.
const MOST: i64 = 1 << 48;

/// So many waiting jobs of a queue are counted, or ten times as many in all queues.
const COUNTED: i64 = 10_000;

/// The queues that have a capacity, by name. Of each up to 10,000 waiting jobs are counted, and of all together ten times that: some
/// milliseconds, however many there are. [`Capacity::partial`] says where there may be more.
///
/// # Errors
/// The database's.
pub async fn capacities(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Capacity>, Error> {
    count(on, store, Some(COUNTED)).await
}

/// As [`capacities`], but every waiting job is counted: about half a second a million.
///
/// # Errors
/// The database's.
pub async fn capacities_exactly(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Capacity>, Error> {
    count(on, store, None).await
}

async fn count(on: impl IntoConnection<'_>, store: Store, most: Option<i64>) -> Result<Vec<Capacity>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/capacities.sql"))).bind(most);
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// The queues that there are, by name: those into which a job was enqueued, and those that have a capacity.
///
/// # Errors
/// The database's.
pub async fn queues(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<String>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/queues.sql")));
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Whether there is this queue, as [`queues`] would say, of which there may be many.
///
/// # Errors
/// The database's.
pub async fn is_queue(on: impl IntoConnection<'_>, store: Store, queue: &str) -> Result<bool, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/is_queue.sql"))).bind(queue);
    statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

impl FromRow<'_, PgRow> for Capacity {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        // Neither is negative: the one by a CHECK, the other is a count.
        let number = |column| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(column)?.unsigned_abs());
        Ok(Self {
            queue: row.try_get("queue")?,
            capacity: number("capacity")?,
            waiting: number("waiting")?,
            partial: row.try_get("partial")?,
        })
    }
}
