//! Makes scheduled and parked jobs ready when they are due. Any worker can promote jobs, and the database clock determines which jobs are
//! due.

use queue_core::Store;
use sqlx::PgConnection;

use crate::live::bounded;

/// Maximum number of jobs per state (scheduled or parked) that one statement promotes.
const MAX_JOBS: i32 = 1000;

/// Makes due jobs ready. Returns the queues of these jobs, and whether more due jobs may remain.
pub(crate) async fn promote(connection: &mut PgConnection, store: Store) -> sqlx::Result<(Vec<String>, bool)> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/promote.sql"))).bind(MAX_JOBS);
    let queues: Vec<(String, i64)> = bounded(statement.fetch_all(connection)).await?;
    let jobs: i64 = queues.iter().map(|(_, jobs)| jobs).sum();
    Ok((queues.into_iter().map(|(queue, _)| queue).collect(), jobs >= i64::from(MAX_JOBS)))
}

/// Wakes the sleeping workers that serve any of `queues`.
pub(crate) async fn wake_others(connection: &mut PgConnection, store: Store, queues: &[String]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/wake_others.sql"))).bind(queues);
    bounded(statement.execute(connection)).await?;
    Ok(())
}
