//! Runs the statements for child jobs of durable jobs one at a time on the caller's connection.

use queue_core::JobId;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::protocol::sql;

/// Spawns a child that is due now, under a unique step name. Returns whether the child was spawned.
pub async fn spawn(connection: &mut PgConnection, token: Uuid, parent: JobId) -> sqlx::Result<bool> {
    let spawn = sqlx::query_scalar::<_, Option<JobId>>(sql(include_str!("../../queue-worker/sql/spawn.sql"))).bind(token).bind(parent);
    let spawn = spawn.bind(1_i16).bind(Uuid::new_v4().to_string()).bind("do").bind(r#"{"act": {"Ok": ""}}"#).bind("{}");
    Ok(spawn.fetch_one(connection).await?.is_some())
}

/// Writes an end hint for each finished job in `jobs` that other jobs wait for.
pub async fn add_end_hints(connection: &mut PgConnection, jobs: &[JobId]) -> sqlx::Result<()> {
    let note = sqlx::query(sql(include_str!("../../queue-worker/sql/add_end_hints.sql"))).bind(jobs).bind(None::<&str>);
    note.execute(connection).await.map(drop)
}

/// Consumes end hints, and reports the ended jobs to the jobs, maps and flows that wait for them. Returns the number of consumed hints.
pub async fn consume_end_hints(connection: &mut PgConnection) -> sqlx::Result<i32> {
    let query = sqlx::query(sql(include_str!("../../queue-worker/sql/consume_end_hints.sql"))).bind(0_i64).bind(1000);
    query.fetch_one(connection).await?.try_get("hints")
}

/// Deletes the child rows of deleted parents, and adds end hints for finished children without a recorded result. Returns whether there
/// were rows to scan.
pub async fn prune_children(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let prune = sqlx::query_scalar::<_, Option<i64>>(sql(include_str!("../../queue-worker/sql/prune_children.sql"))).bind(0_i64).bind(1000);
    Ok(prune.fetch_one(connection).await?.is_some())
}
