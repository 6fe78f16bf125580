//! Child jobs of durable jobs. A child is spawned under its parent's lease. The transaction that finishes the child also writes a hint.
//! The loop that consumes the hint records the child's result for the parent.
//!
//! [`add_end_hints`] is called only for jobs on which other jobs depend. Other jobs cause no extra query.

use queue_core::{
    JobId, Store,
    runner::{ChildEntry, ChildStatus},
};
use sqlx::{PgConnection, PgPool};

use crate::live::bounded;

/// Child id, final state, number of attempts, output as JSON text, and error.
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

/// Loads the result of the child that `step` spawned. Returns `None` if the step spawned no child.
pub(crate) async fn load_child(pool: &PgPool, store: Store, parent: JobId, step: &str) -> sqlx::Result<Option<ChildStatus>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/child_outcome.sql"))).bind(parent).bind(step);
    let row: Option<ChildRow> = bounded(statement.fetch_optional(pool)).await?;
    Ok(row.map(|(id, state, attempts, output, error)| ChildStatus { id, state, attempts: attempts.unwrap_or_default(), output, error }))
}

/// Writes hints for the parents, flows and maps that wait for `jobs`. Must run in the transaction that finishes the jobs. `state`
/// is the final state of all jobs. If `state` is `None`, the statement reads the state of each job and skips unfinished jobs.
pub(crate) async fn add_end_hints(connection: &mut PgConnection, store: Store, jobs: &[JobId], state: Option<&str>) -> sqlx::Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let statement = sqlx::query(store.sql(include_str!("../../sql/add_end_hints.sql"))).bind(jobs).bind(state);
    bounded(statement.execute(connection)).await.map(drop)
}
