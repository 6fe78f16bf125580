//! The statements of children of durable jobs, one at a time on a connection of the caller's.

use queue_core::JobId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::protocol::sql;

/// Spawns a child for now as a step that no other call names; returns whether it was spawned.
pub async fn spawn(connection: &mut PgConnection, token: Uuid, parent: JobId) -> sqlx::Result<bool> {
    let spawn = sqlx::query_scalar::<_, Option<JobId>>(sql(include_str!("../../queue-worker/sql/spawn.sql"))).bind(token).bind(parent);
    let spawn = spawn.bind(1_i16).bind(Uuid::new_v4().to_string()).bind("do").bind(r#"{"act": {"Ok": ""}}"#).bind("{}");
    Ok(spawn.fetch_one(connection).await?.is_some())
}

/// Tells the parents of those that are over; returns of how many.
pub async fn tell_parents(connection: &mut PgConnection, jobs: &[JobId]) -> sqlx::Result<i32> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/tell_parents.sql"))).bind(jobs).fetch_one(connection).await
}

/// Deletes children of jobs that are gone, and tells of those that are over; returns whether it saw any.
pub async fn prune_children(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let prune = sqlx::query_scalar::<_, Option<i64>>(sql(include_str!("../../queue-worker/sql/prune_children.sql"))).bind(0_i64).bind(1000);
    Ok(prune.fetch_one(connection).await?.is_some())
}
