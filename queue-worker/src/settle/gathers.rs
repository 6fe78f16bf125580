//! Maps of durable jobs: chunks and their end, written under the lease of the job, and what they came to. Their parts are
//! counted by who consumes the hints of ends.

use queue_core::{
    JobId, Store,
    runner::{ChildLook, ChunkEntry, CloseEntry, GatherLook},
};
use sqlx::{PgPool, Postgres, Transaction};

use crate::live::bounded;

/// The part, what it came to, after how many attempts, its output as JSON text, its error.
type Row = (JobId, Option<String>, Option<i16>, Option<String>, Option<String>);

/// The last statement of the transaction that has enqueued the chunk, and its commit. False if there is such a chunk, none if the lease does not have
/// the parent any more: then nothing of it stays.
pub(super) async fn add_chunk(mut tx: Transaction<'static, Postgres>, store: Store, entry: ChunkEntry) -> sqlx::Result<Option<bool>> {
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
        // Whether it succeeds or not, nothing of it stays.
        let _ = bounded(tx.rollback()).await;
    }
    Ok(added)
}

pub(super) async fn close(pool: &PgPool, store: Store, entry: &CloseEntry) -> sqlx::Result<Option<bool>> {
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/close_gather.sql")))
        .bind(entry.fence.token)
        .bind(entry.fence.id)
        .bind(entry.fence.attempt)
        .bind(&entry.name)
        .bind(entry.total);
    bounded(statement.fetch_one(pool)).await
}

pub(crate) async fn look(pool: &PgPool, store: Store, parent: JobId, step: &str, chunks: bool) -> sqlx::Result<Option<GatherLook>> {
    let statement = if chunks { include_str!("../../sql/look_at_gather.sql") } else { include_str!("../../sql/gather_total.sql") };
    bounded(sqlx::query_as(store.sql(statement)).bind(parent).bind(step).fetch_optional(pool)).await
}

pub(crate) async fn parts(pool: &PgPool, store: Store, parent: JobId, step: &str, chunk: i32) -> sqlx::Result<Vec<ChildLook>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/parts.sql"))).bind(parent).bind(step).bind(chunk);
    let rows: Vec<Row> = bounded(statement.fetch_all(pool)).await?;
    let look = |(id, state, attempts, output, error): Row| ChildLook { id, state, attempts: attempts.unwrap_or_default(), output, error };
    Ok(rows.into_iter().map(look).collect())
}
