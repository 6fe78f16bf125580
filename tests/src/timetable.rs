//! Runs statements for schedules and pauses one at a time, as operators and workers run them. Unless documented otherwise, a statement
//! concerns the schedule `due` or the queue `default`.

use chrono::{DateTime, Duration, Utc};
use sqlx::{PgConnection, Row as _, error::DatabaseError};
use uuid::Uuid;

use crate::protocol::sql;

const PAYLOAD: &str = r#"{"act":{"Ok":"done"}}"#;

/// Creates the schedule with a grace of `grace` seconds, or changes the grace of the existing schedule.
pub async fn put(connection: &mut PgConnection, grace: u32) -> sqlx::Result<()> {
    let put = sqlx::query(sql(include_str!("../../queue-core/sql/put_schedule.sql"))).bind("due").bind("do").bind(PAYLOAD);
    put.bind(format!(r#"{{"every": 1, "overlap": "allow", "grace": {grace}}}"#)).execute(connection).await.map(drop)
}

/// Fires the schedule's current tick, and plans the following tick for one hour later. Returns the number of jobs created.
pub async fn fire(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let seen = "select definition, next_at from queue.schedule where name = 'due' and next_at is not null";
    let Some((definition, tick)) = sqlx::query_as::<_, (i64, DateTime<Utc>)>(seen).fetch_optional(&mut *connection).await? else {
        return Ok(0);
    };
    let fired = sqlx::query(sql(include_str!("../../queue-worker/sql/fire.sql")))
        .bind(["due"])
        .bind([definition])
        .bind([tick])
        .bind([format!("{{{}}}", tick.to_rfc3339())])
        .bind(["enqueue"])
        .bind([tick + Duration::hours(1)])
        .bind([None::<&str>])
        .bind(100)
        .fetch_all(connection)
        .await?;
    Ok(fired.iter().filter(|fired| fired.get::<Option<i64>, _>("job").is_some()).count() as i64)
}

/// Deletes the schedule. Returns whether the schedule existed.
pub async fn unschedule(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar(sql(include_str!("../../queue-core/sql/unschedule.sql"))).bind("due").fetch_one(connection).await
}

/// Pauses the schedule. Returns whether the schedule exists.
pub async fn pause_schedule(connection: &mut PgConnection) -> sqlx::Result<bool> {
    if_possible(connection, sql(include_str!("../../queue-core/sql/pause_schedule.sql"))).await
}

/// Resumes the schedule. Returns whether the schedule exists.
pub async fn resume_schedule(connection: &mut PgConnection) -> sqlx::Result<bool> {
    if_possible(connection, sql(include_str!("../../queue-core/sql/resume_schedule.sql"))).await
}

/// Skips the schedule's next tick. Returns false if the schedule does not exist or has no next tick.
pub async fn skip_schedule(connection: &mut PgConnection) -> sqlx::Result<bool> {
    if_possible(connection, sql(include_str!("../../queue-core/sql/skip_schedule.sql"))).await
}

/// Enqueues a job of the schedule. Returns whether the schedule exists.
pub async fn run_schedule(connection: &mut PgConnection) -> sqlx::Result<bool> {
    if_possible(connection, sql(include_str!("../../queue-core/sql/run_schedule.sql"))).await
}

/// Runs a statement in a savepoint, because the statement fails if the schedule does not exist or has no next tick. Returns whether the
/// statement succeeded.
async fn if_possible(connection: &mut PgConnection, statement: &'static str) -> sqlx::Result<bool> {
    sqlx::query("savepoint before_it").execute(&mut *connection).await?;
    match sqlx::query(statement).bind("due").execute(&mut *connection).await {
        Err(sqlx::Error::Database(error)) if matches!(DatabaseError::code(&*error).as_deref(), Some("P0002" | "55000")) => {
            sqlx::query("rollback to savepoint before_it").execute(connection).await.map(|_| false)
        }
        done => done.map(|_| true),
    }
}

/// Declares the schedule `told` for a worker, with a grace in seconds. Returns the number of declarations that were deferred or rejected.
pub async fn declare(connection: &mut PgConnection, worker: Uuid, grace: u32) -> sqlx::Result<usize> {
    let declare = sqlx::query(sql(include_str!("../../queue-worker/sql/declare.sql")))
        .bind(worker)
        .bind(["told"])
        .bind(["do"])
        .bind([PAYLOAD])
        .bind([format!(r#"{{"every": 60, "grace": {grace}}}"#)]);
    declare.fetch_all(connection).await.map(|held_up| held_up.len())
}

/// Puts the declarations of live workers in force. Returns the name and the outcome of each affected schedule.
pub async fn elect(connection: &mut PgConnection) -> sqlx::Result<Vec<(String, String)>> {
    sqlx::query_as(sql(include_str!("../../queue-worker/sql/elect.sql"))).fetch_all(connection).await
}

/// Deletes up to 100 ticks that fired more than a week ago and whose jobs have finished. Returns the number of deleted ticks.
pub async fn prune_fires(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/prune_fires.sql")));
    prune.bind(7.0 * 86_400.0).bind(100_i64).fetch_one(connection).await
}

/// Pauses the queue. Returns the number of the pause.
pub async fn pause(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let pause = sqlx::query_scalar(sql(include_str!("../../queue-core/sql/pause.sql")));
    pause.bind("default").bind("*").bind("by hand").fetch_one(connection).await
}

/// Resumes the queue. Returns whether the queue was paused.
pub async fn resume(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar(sql(include_str!("../../queue-core/sql/resume.sql"))).bind("default").bind("*").fetch_one(connection).await
}

/// Acknowledges all pauses that the worker sees. Returns whether any acknowledgement is new.
pub async fn acknowledge(connection: &mut PgConnection, worker: Uuid) -> sqlx::Result<bool> {
    let pauses = sqlx::query(sql(include_str!("../../queue-worker/sql/pauses.sql"))).bind(worker).fetch_all(&mut *connection).await?;
    let last = pauses.iter().filter_map(|pause| pause.get::<Option<i64>, _>("number")).max();
    let vouch = sqlx::query(sql(include_str!("../../queue-worker/sql/acknowledge_pauses.sql"))).bind(worker).bind(last.unwrap_or(0));
    Ok(vouch.execute(connection).await?.rows_affected() > 0)
}

/// Returns the workers that have not acknowledged the pause of the queue yet.
pub async fn awaited(connection: &mut PgConnection) -> sqlx::Result<Vec<Uuid>> {
    let awaits = sqlx::query(sql(include_str!("../../queue-core/sql/pause_awaits.sql"))).bind("default").bind("*");
    Ok(awaits.fetch_all(connection).await?.iter().filter_map(|row| row.get("worker")).collect())
}
