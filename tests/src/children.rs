//! The statements of children of durable jobs, one at a time on a connection of the caller's.

use queue_core::JobId;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::protocol::sql;

/// Spawns a child for now as a step that no other call names; returns whether it was spawned.
pub async fn spawn(connection: &mut PgConnection, token: Uuid, parent: JobId) -> sqlx::Result<bool> {
    let spawn = sqlx::query_scalar::<_, Option<JobId>>(sql(include_str!("../../queue-worker/sql/spawn.sql"))).bind(token).bind(parent);
    let spawn = spawn.bind(1_i16).bind(Uuid::new_v4().to_string()).bind("do").bind(r#"{"act": {"Ok": ""}}"#).bind("{}");
    Ok(spawn.fetch_one(connection).await?.is_some())
}

/// Leaves hints of those of these jobs that are over and that others wait for.
pub async fn note_ends(connection: &mut PgConnection, jobs: &[JobId]) -> sqlx::Result<()> {
    let note = sqlx::query(sql(include_str!("../../queue-worker/sql/note_ends.sql"))).bind(jobs).bind(None::<&str>);
    note.execute(connection).await.map(drop)
}

/// Tells those that wait for jobs of which there is a hint; returns of how many hints.
pub async fn tell_ends(connection: &mut PgConnection) -> sqlx::Result<i32> {
    let tell = sqlx::query(sql(include_str!("../../queue-worker/sql/tell_ends.sql"))).bind(0_i64).bind(1000);
    tell.fetch_one(connection).await?.try_get("hints")
}

/// Deletes children of jobs that are gone, and tells of those that are over; returns whether it saw any.
pub async fn prune_children(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let prune = sqlx::query_scalar::<_, Option<i64>>(sql(include_str!("../../queue-worker/sql/prune_children.sql"))).bind(0_i64).bind(1000);
    Ok(prune.fetch_one(connection).await?.is_some())
}
