//! Making scheduled jobs ready once their time has come. Any worker does it; the time is the database's.

use queue_core::Store;
use sqlx::PgConnection;

use crate::live::bounded;

/// The most jobs of one statement.
const MOST: i32 = 1000;

/// Promotes what is due; returns the queues that got jobs, and whether there may be more.
pub(crate) async fn promote(connection: &mut PgConnection, store: Store) -> sqlx::Result<(Vec<String>, bool)> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/promote.sql"))).bind(MOST);
    let queues: Vec<(String, i64)> = bounded(statement.fetch_all(connection)).await?;
    let jobs: i64 = queues.iter().map(|(_, jobs)| jobs).sum();
    Ok((queues.into_iter().map(|(queue, _)| queue).collect(), jobs >= i64::from(MOST)))
}

/// Wakes other workers that sleep over these queues.
pub(crate) async fn wake_others(connection: &mut PgConnection, store: Store, queues: &[String]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/wake_others.sql"))).bind(queues);
    bounded(statement.execute(connection)).await?;
    Ok(())
}
