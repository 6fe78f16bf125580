//! Capacities of queues, and counts of waiting jobs.

use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::rejection::explain;
use crate::{
    error::Error,
    results::{Queue, QueueConnection},
    schema::check_name,
};

/// Capacity of a queue, and the number of its waiting jobs.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// Queue::new(pool).set_capacity("mail", Some(100_000)).await?;
/// for queue in Queue::new(pool).capacities().await? {
///     println!("{}: {} of {} jobs are waiting", queue.queue, queue.waiting, queue.capacity);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Capacity {
    /// Name of the queue.
    pub queue: String,
    /// Maximum number of waiting jobs. If this number is reached, new jobs are rejected.
    pub capacity: u64,
    /// Number of waiting jobs: ready, scheduled and blocked. May exceed the capacity, because retried, released, recovered and requeued
    /// jobs are never rejected.
    pub waiting: u64,
    /// Whether `waiting` may be too low, because [`Queue::capacities`] stops counting at a limit.
    pub partial: bool,
}

impl<C: QueueConnection> Queue<C> {
    /// Sets the capacity of a queue to `capacity` waiting jobs, or removes the capacity if `capacity` is `None`. Jobs that are already
    /// waiting stay in the queue. Only new jobs are rejected, with [`Error::AtCapacity`]. Retried, released, recovered and requeued jobs
    /// are never rejected.
    ///
    /// A transaction that began before the change was committed may still enqueue under the old capacity.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] if the queue name is invalid, [`Error::OutOfRange`] if `capacity` exceeds 281,474,976,710,656, and
    /// [`Error::Database`] if the query fails.
    pub async fn set_capacity(&self, queue: &str, capacity: Option<u64>) -> Result<(), Error> {
        check_name("queue name", queue)?;
        let out_of_range =
            |capacity: u64| Error::OutOfRange { what: "the capacity", value: capacity.to_string(), range: "at most 281474976710656 jobs" };
        let checked =
            |capacity| i64::try_from(capacity).ok().filter(|capacity| *capacity <= MAX_CAPACITY).ok_or_else(|| out_of_range(capacity));
        let capacity = capacity.map(checked).transpose()?;
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/set_capacity.sql"))).bind(queue).bind(capacity);
        statement.execute(&mut *self.connection().await?).await.map(drop).map_err(|error| explain(error, self.store))
    }

    /// Returns the queues with a capacity, sorted by name. Counts up to 10,000 waiting jobs per queue and up to 100,000 in total, which
    /// takes a few milliseconds. [`Capacity::partial`] marks counts that may be too low.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn capacities(&self) -> Result<Vec<Capacity>, Error> {
        self.query_capacities(Some(MAX_COUNTED)).await
    }

    /// Returns the same as [`Queue::capacities`], but counts every waiting job. Takes about half a second per million jobs.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn capacities_exactly(&self) -> Result<Vec<Capacity>, Error> {
        self.query_capacities(None).await
    }

    /// Returns the names of the existing queues, sorted. A queue exists if it has a capacity or a lane. Unused lanes are removed, so an
    /// unused queue without a capacity is eventually omitted.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn queues(&self) -> Result<Vec<String>, Error> {
        let statement = sqlx::query_scalar(self.store.sql(include_str!("../../sql/queues.sql")));
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    /// Returns whether the queue exists, as defined by [`Queue::queues`]. Costs less than listing all queues.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn is_queue(&self, queue: &str) -> Result<bool, Error> {
        let statement = sqlx::query_scalar(self.store.sql(include_str!("../../sql/is_queue.sql"))).bind(queue);
        statement.fetch_one(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    async fn query_capacities(&self, most: Option<i64>) -> Result<Vec<Capacity>, Error> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/capacities.sql"))).bind(most);
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }
}

/// Maximum capacity of a queue. Prevents integer overflow in the database.
const MAX_CAPACITY: i64 = 1 << 48;

/// Maximum number of waiting jobs counted per queue. The total over all queues is limited to ten times this number.
const MAX_COUNTED: i64 = 10_000;

impl FromRow<'_, PgRow> for Capacity {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        // Neither number is negative: a CHECK constraint covers the capacity, and `waiting` is the result of a count.
        let number = |column| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(column)?.unsigned_abs());
        Ok(Self {
            queue: row.try_get("queue")?,
            capacity: number("capacity")?,
            waiting: number("waiting")?,
            partial: row.try_get("partial")?,
        })
    }
}
