//! How many jobs may wait in a queue, and how many do.

use queue_core::{Store, check_name};
use serde::Serialize;
use sqlx::{FromRow, PgConnection, Row as _, postgres::PgRow};

use crate::error::Error;

/// A bounded queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Capacity {
    /// The queue.
    pub queue: String,
    /// How many jobs may wait in it before an enqueue is refused.
    pub capacity: u64,
    /// How many do, ready and scheduled. What comes back to a queue is not refused, so these may be more.
    pub waiting: u64,
}

/// Bounds a queue to so many waiting jobs, or no more if `capacity` is `None`. Jobs that wait already stay, and what comes back to the queue
/// (retries, released, recovered and requeued jobs) is never refused: only an enqueue is, with [`queue_core::Error::QueueFull`].
///
/// A transaction that began before this was committed may still enqueue as before.
///
/// # Errors
/// [`queue_core::Error::InvalidName`]; the database's.
pub async fn set_capacity(connection: &mut PgConnection, store: Store, queue: &str, capacity: Option<u64>) -> Result<(), Error> {
    check_name("queue name", queue)?;
    // More than a bigint holds is as good as no bound, and as the largest.
    let capacity = capacity.map(|capacity| i64::try_from(capacity).unwrap_or(i64::MAX).min(MOST));
    let statement = sqlx::query(store.sql(include_str!("../../../queue-core/sql/set_capacity.sql"))).bind(queue).bind(capacity);
    statement.persistent(false).execute(connection).await?;
    Ok(())
}

/// The largest capacity: what the database reckons with it must not overflow.
const MOST: i64 = 1 << 48;

/// The bounded queues, by name. Every waiting job of theirs is counted.
///
/// # Errors
/// The database's.
pub async fn capacities(connection: &mut PgConnection, store: Store) -> Result<Vec<Capacity>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../../queue-core/sql/capacities.sql")));
    Ok(statement.persistent(false).fetch_all(connection).await?)
}

impl FromRow<'_, PgRow> for Capacity {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        // Neither is negative: the one by a CHECK, the other is a count.
        let number = |column| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(column)?.unsigned_abs());
        Ok(Self { queue: row.try_get("queue")?, capacity: number("capacity")?, waiting: number("waiting")? })
    }
}
