//! Children of durable jobs: spawned under the lease of their parent, read by the parent, and recorded in the transaction that ends them.
//!
//! Only verdicts on children reach `note_ends`. Other jobs cost no query here.

use queue_core::{
    JobId, Store,
    runner::{ChildEntry, ChildStatus},
};
use sqlx::{PgConnection, PgPool};

use crate::live::bounded;

/// Child id, final state, attempts, output as JSON text, error.
type ChildRow = (JobId, Option<String>, Option<i16>, Option<String>, Option<String>);

/// Enqueues a child. Returns `None` if the lease no longer lists the parent.
pub(super) async fn insert_child(pool: &PgPool, store: Store, child: &ChildEntry) -> sqlx::Result<Option<JobId>> {
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/spawn.sql")))
        .bind(child.fence.token)
        .bind(child.fence.id)
        .bind(child.fence.attempt)
        .bind(&child.name)
        .bind(child.job_type)
        .bind(&child.payload)
        .bind(&child.options);
    bounded(statement.fetch_one(pool)).await
}

/// Loads the result of the child that this step spawned. Returns `None` if there is no such child.
pub(crate) async fn load_child(pool: &PgPool, store: Store, parent: JobId, step: &str) -> sqlx::Result<Option<ChildStatus>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/look_at_child.sql"))).bind(parent).bind(step);
    let row: Option<ChildRow> = bounded(statement.fetch_optional(pool)).await?;
    Ok(row.map(|(id, state, attempts, output, error)| ChildStatus { id, state, attempts: attempts.unwrap_or_default(), output, error }))
}

/// Writes hints that jobs have ended, for parents, flows and maps that wait for them. Must run in the transaction that ended them.
/// With a `state`, all of them are in that state. Without one, some of them may not have ended.
pub(crate) async fn note_ends(connection: &mut PgConnection, store: Store, jobs: &[JobId], state: Option<&str>) -> sqlx::Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let statement = sqlx::query(store.sql(include_str!("../../sql/note_ends.sql"))).bind(jobs).bind(state);
    bounded(statement.execute(connection)).await.map(drop)
}
