//! Children of durable jobs: spawned under the lease of their parent, looked at by it, and noted in the transaction that ends them.
//!
//! Only an ending that says that it is a child's gets here: of other jobs nothing is asked.

use queue_core::{
    JobId, Store,
    runner::{ChildEntry, ChildLook},
};
use sqlx::{PgConnection, PgPool};

use crate::live::bounded;

/// The child, what it came to, after how many attempts, its output as JSON text, its error.
type Row = (JobId, Option<String>, Option<i16>, Option<String>, Option<String>);

/// None if the lease does not have the parent any more.
pub(super) async fn enqueue(pool: &PgPool, store: Store, child: &ChildEntry) -> sqlx::Result<Option<JobId>> {
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

/// What the child that this step has spawned came to; none if there is none.
pub(crate) async fn look(pool: &PgPool, store: Store, parent: JobId, step: &str) -> sqlx::Result<Option<ChildLook>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/look_at_child.sql"))).bind(parent).bind(step);
    let row: Option<Row> = bounded(statement.fetch_optional(pool)).await?;
    Ok(row.map(|(id, state, attempts, output, error)| ChildLook { id, state, attempts: attempts.unwrap_or_default(), output, error }))
}

/// Leaves hints of these jobs for those that wait for them, in the transaction that has ended some of them, or has brought all to this state.
pub(crate) async fn note_ends(connection: &mut PgConnection, store: Store, jobs: &[JobId], state: Option<&str>) -> sqlx::Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let statement = sqlx::query(store.sql(include_str!("../../sql/note_ends.sql"))).bind(jobs).bind(state);
    bounded(statement.execute(connection)).await.map(drop)
}
