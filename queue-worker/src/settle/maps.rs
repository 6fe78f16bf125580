//! Maps of durable jobs. A parent spawns the jobs of a map (the parts) in batches, then closes the map and reads the results of the
//! parts. Batches are added and maps are closed under the parent's lease.
//!
//! This module does not count finished parts. The loop that consumes hints about finished jobs counts the parts.

use queue_core::{
    JobId, Store,
    runner::{ChildStatus, ChunkEntry, CloseEntry, MapProgress},
};
use sqlx::{PgPool, Postgres, Transaction};

use crate::live::bounded;

/// Part id, final state, number of attempts, output as JSON text, and error.
type MapPartRow = (JobId, Option<String>, Option<i16>, Option<String>, Option<String>);

/// Records a map batch as the last statement of the transaction that enqueued the batch, and commits.
///
/// Returns `false` if the batch already exists, and `None` if the lease no longer lists the parent. In both cases, the transaction is
/// rolled back.
pub(super) async fn add_batch(mut tx: Transaction<'static, Postgres>, store: Store, entry: ChunkEntry) -> sqlx::Result<Option<bool>> {
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/add_chunk.sql")))
        .bind(entry.fence.token)
        .bind(entry.fence.id)
        .bind(&entry.name)
        .bind(entry.chunk)
        .bind(entry.first)
        .bind(&entry.ids)
        .bind(entry.most);
    let added: Option<bool> = bounded(statement.fetch_one(&mut *tx)).await?;
    if added == Some(true) {
        bounded(tx.commit()).await?;
    } else {
        // The transaction is never committed, so even a failed rollback discards the writes.
        let _ = bounded(tx.rollback()).await;
    }
    Ok(added)
}

/// Closes a map, so that no further batches can be added. Returns `false` if the map's number of parts differs from `entry.total`, and
/// `None` if the lease no longer lists the parent.
pub(super) async fn close_map(pool: &PgPool, store: Store, entry: &CloseEntry) -> sqlx::Result<Option<bool>> {
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/close_gather.sql")))
        .bind(entry.fence.token)
        .bind(entry.fence.id)
        .bind(entry.fence.attempt)
        .bind(&entry.name)
        .bind(entry.total);
    bounded(statement.fetch_one(pool)).await
}

/// Loads the progress of a map, or `None` if the map does not exist. If `batches` is true, includes the number of batches.
pub(crate) async fn load_map(pool: &PgPool, store: Store, parent: JobId, step: &str, batches: bool) -> sqlx::Result<Option<MapProgress>> {
    let statement = if batches { include_str!("../../sql/gather_outcome.sql") } else { include_str!("../../sql/gather_total.sql") };
    bounded(sqlx::query_as(store.sql(statement)).bind(parent).bind(step).fetch_optional(pool)).await
}

/// Loads the results of all parts in one map batch, in the order of the parts.
pub(crate) async fn load_parts(pool: &PgPool, store: Store, parent: JobId, step: &str, batch: i32) -> sqlx::Result<Vec<ChildStatus>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/parts.sql"))).bind(parent).bind(step).bind(batch);
    let rows: Vec<MapPartRow> = bounded(statement.fetch_all(pool)).await?;
    let part =
        |(id, state, attempts, output, error): MapPartRow| ChildStatus { id, state, attempts: attempts.unwrap_or_default(), output, error };
    Ok(rows.into_iter().map(part).collect())
}
