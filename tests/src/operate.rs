//! The other statements by hand: what producers, housekeeping and operators do, as [`protocol`](crate::protocol) is what a worker does.

use queue_core::JobId;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::protocol::sql;

/// Enqueues a job, for now or for in an hour.
pub async fn enqueue(connection: &mut PgConnection, queue: &str, priority: i16, later: bool) -> sqlx::Result<JobId> {
    enqueue_by(sql(include_str!("../../queue-core/sql/enqueue.sql")), connection, queue, priority, later).await
}

/// Enqueues a job whose commit does not wait for the disk.
pub async fn enqueue_relaxed(connection: &mut PgConnection, queue: &str, priority: i16) -> sqlx::Result<JobId> {
    enqueue_by(sql(include_str!("../../queue-core/sql/enqueue_relaxed.sql")), connection, queue, priority, false).await
}

async fn enqueue_by(
    statement: &'static str,
    connection: &mut PgConnection,
    queue: &str,
    priority: i16,
    later: bool,
) -> sqlx::Result<JobId> {
    sqlx::query_scalar(statement)
        .bind("do")
        .bind(PAYLOAD)
        .bind(queue)
        .bind(priority)
        .bind(3_i16)
        .bind(None::<chrono::DateTime<chrono::Utc>>)
        .bind(later.then_some(3_600_000.0))
        .fetch_one(connection)
        .await
}

/// Enqueues a job that replaces the payload of whichever waits under the same uniqueness key, or one under an ordering key; returns which job it is,
/// and whether it is a new one.
pub async fn enqueue_with(connection: &mut PgConnection, key: Option<&str>, unique: Option<&str>) -> sqlx::Result<(JobId, bool)> {
    let options = match unique {
        Some(unique) => serde_json::json!({
            "max_attempts": 3, "key": key, "unique_key": unique, "unique_while": "queued", "on_conflict": "replace"
        }),
        None => serde_json::json!({ "max_attempts": 3, "key": key }),
    };
    let enqueue = sqlx::query_as(sql(include_str!("../../queue-core/sql/enqueue_with.sql")));
    let enqueue = enqueue.bind("do").bind(PAYLOAD).bind(options.to_string()).bind(false);
    let (id, outcome): (JobId, String) = enqueue.fetch_one(connection).await?;
    Ok((id, outcome == "enqueued"))
}

/// Enqueues a job under an ordering key, as another driver does.
pub async fn enqueue_text(connection: &mut PgConnection, key: &str) -> sqlx::Result<JobId> {
    let options = serde_json::json!({ "max_attempts": 3, "key": key });
    let enqueue = sqlx::query_scalar(sql(include_str!("../../queue-core/sql/enqueue_text.sql")));
    enqueue.bind("do").bind(PAYLOAD).bind(options.to_string()).fetch_one(connection).await
}

const PAYLOAD: &str = r#"{"act":{"Ok":"done"}}"#;

/// The lanes of these queues and priorities, written if they are new.
pub async fn meet_lanes(connection: &mut PgConnection, lanes: &[(&str, i16)]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar(sql(include_str!("../../queue-core/sql/meet_lanes.sql")))
        .bind(lanes.iter().map(|(queue, _)| *queue).collect::<Vec<_>>())
        .bind(vec!["do"; lanes.len()])
        .bind(lanes.iter().map(|(_, priority)| *priority).collect::<Vec<_>>())
        .bind(false)
        .fetch_one(connection)
        .await
}

/// Enqueues many: in these lanes, for now or for in an hour.
pub async fn insert_all(connection: &mut PgConnection, jobs: &[(i64, bool)]) -> sqlx::Result<Vec<JobId>> {
    let later = chrono::Utc::now() + chrono::Duration::hours(1);
    let payload: serde_json::Value = serde_json::from_str(PAYLOAD).unwrap_or_default();
    sqlx::query_scalar(sql(include_str!("../../queue-core/sql/insert_all.sql")))
        .bind(vec![payload; jobs.len()])
        .bind(jobs.iter().map(|(lane, _)| *lane).collect::<Vec<_>>())
        .bind(vec![3_i16; jobs.len()])
        .bind(jobs.iter().map(|(_, put_off)| put_off.then_some(later)).collect::<Vec<_>>())
        .fetch_one(connection)
        .await
}

/// Gives back leases whose claim was never answered; returns how many jobs.
pub async fn give_back(connection: &mut PgConnection, tokens: &[Uuid]) -> sqlx::Result<i64> {
    let done = sqlx::query(sql(include_str!("../../queue-worker/sql/give_back.sql"))).bind(tokens).execute(connection).await?;
    Ok(i64::try_from(done.rows_affected()).unwrap_or(i64::MAX))
}

/// Has workers that are said to live for too long live for no longer than a heartbeat lasts; returns how many.
pub async fn limit_beats(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let done = sqlx::query(sql(include_str!("../../queue-worker/sql/limit_beats.sql"))).execute(connection).await?;
    Ok(i64::try_from(done.rows_affected()).unwrap_or(i64::MAX))
}

/// Promotes up to `most` jobs; returns how many it did.
pub async fn promote(connection: &mut PgConnection, most: i64) -> sqlx::Result<i64> {
    let promote = sqlx::query_as(sql(include_str!("../../queue-worker/sql/promote.sql"))).bind(most);
    let queues: Vec<(String, i64)> = promote.fetch_all(connection).await?;
    Ok(queues.iter().map(|(_, jobs)| jobs).sum())
}

/// Lets ordering keys go on that were left hints; returns how many jobs were moved.
pub async fn unblock(connection: &mut PgConnection) -> sqlx::Result<i32> {
    let unblock = sqlx::query(sql(include_str!("../../queue-worker/sql/unblock.sql"))).bind(0_i64).bind(1000);
    let unblock = unblock.bind(0_i64).bind(0_i64).bind(0_i64).bind(0_i64);
    unblock.fetch_one(connection).await?.try_get("moved")
}

/// Ends what has not begun in time; returns of how many jobs.
pub async fn expire_due(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let expire =
        sqlx::query(sql(include_str!("../../queue-worker/sql/expire_due.sql"))).bind(None::<chrono::DateTime<chrono::Utc>>).bind(1000);
    let expired: Vec<JobId> = expire.fetch_one(connection).await?.try_get("expired")?;
    Ok(i64::try_from(expired.len()).unwrap_or(i64::MAX))
}

/// Requeues dead letters; returns those it did.
pub async fn requeue(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.requeue_all($1) c")).bind(ids).fetch_all(connection).await
}

/// Cancels jobs that wait; returns those it did.
pub async fn cancel(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.cancel_waiting_all($1) c")).bind(ids).fetch_all(connection).await
}

/// Discards dead letters; returns those it did.
pub async fn discard(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.discard_all($1) c")).bind(ids).fetch_all(connection).await
}

/// Requeues a job that is over; whether it did.
pub async fn reopen(connection: &mut PgConnection, id: JobId) -> sqlx::Result<bool> {
    sqlx::query_scalar(sql("select queue.reopen($1)")).bind(id).fetch_one(connection).await
}

/// Ends a worker cleanly.
pub async fn retire(connection: &mut PgConnection, worker: Uuid) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-worker/sql/retire.sql"))).bind(worker).execute(connection).await.map(drop)
}

/// Asks to be woken for any queue.
pub async fn sleep(connection: &mut PgConnection, worker: Uuid) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-worker/sql/sleep.sql"))).bind(worker).bind(vec!["*"]).execute(connection).await.map(drop)
}

/// Asks no longer.
pub async fn wake_up(connection: &mut PgConnection, worker: Uuid) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-worker/sql/wake_up.sql"))).bind(worker).execute(connection).await.map(drop)
}

/// Deletes the history that belongs to no day, as if its retention were over; returns of how many jobs.
pub async fn prune_done(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/prune_done.sql"))).bind(AHEAD).bind(5000_i64);
    prune.fetch_one(connection).await
}

/// A retention that is over before its day is: for a month to come.
const AHEAD: f64 = -30.0 * 86_400.0;

/// Forgets workers that are gone.
pub async fn prune_workers(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-worker/sql/prune_workers.sql")))
        .bind([] as [uuid::Uuid; 0])
        .execute(connection)
        .await
        .map(drop)
}

/// Drops the oldest day as if its retention were over; whether there was one.
pub async fn drop_day(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("select queue.drop_day($1 * interval '1 second') is not null").bind(AHEAD).fetch_one(connection).await
}

/// Makes the partitions of today; returns how many days it made.
pub async fn add_days(connection: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/add_days.sql"))).bind(0).fetch_one(connection).await
}

/// Puts jobs that wait off until in an hour; returns those it did.
pub async fn reschedule(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.reschedule_all($1, clock_timestamp() + interval '1 hour') c"))
        .bind(ids)
        .fetch_all(connection)
        .await
}

/// Makes scheduled jobs ready; returns those it did.
pub async fn run_now(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.run_now_all($1) c")).bind(ids).fetch_all(connection).await
}

/// Gives jobs that wait another priority; returns those it did.
pub async fn set_priority(connection: &mut PgConnection, ids: &[JobId], priority: i32) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.set_priority_all($1, $2) c")).bind(ids).bind(priority).fetch_all(connection).await
}

/// Has jobs that run cancelled; returns those it did.
pub async fn cancel_running(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.cancel_running_all($1) c")).bind(ids).fetch_all(connection).await
}

/// Says how long, in seconds, jobs of the tests' type are kept; returns how many types changed.
pub async fn keep_types(connection: &mut PgConnection, seconds: f64) -> sqlx::Result<i64> {
    let statement = sqlx::query(sql(include_str!("../../queue-worker/sql/keep_types.sql"))).bind(vec!["do"]).bind(vec![Some(seconds)]);
    Ok(i64::try_from(statement.execute(connection).await?.rows_affected()).unwrap_or(i64::MAX))
}

/// Forgets uniqueness keys that no job holds; returns how many.
pub async fn forget_keys(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let forget = sqlx::query_scalar::<_, i32>(sql(include_str!("../../queue-worker/sql/forget_keys.sql"))).bind(1000);
    forget.fetch_one(connection).await.map(i64::from)
}

/// Frees ordering keys whose head is no job; returns how many.
pub async fn free_keys(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let free =
        sqlx::query(sql(include_str!("../../queue-worker/sql/free_keys.sql"))).bind(i64::MIN).bind(1000).fetch_all(connection).await?;
    let heads = free.iter().map(|row| row.try_get::<Option<JobId>, _>("head")).collect::<sqlx::Result<Vec<_>>>()?;
    Ok(i64::try_from(heads.iter().flatten().count()).unwrap_or(i64::MAX))
}

/// Says to which queue jobs of a type go that no test enqueues; returns how many types changed.
pub async fn publish_types(connection: &mut PgConnection, queue: &str) -> sqlx::Result<i64> {
    let publish = sqlx::query(sql(include_str!("../../queue-worker/sql/publish_types.sql"))).bind(["published"]).bind([queue]);
    let published = publish.bind([100_i16]).bind([20_i16]).bind([None::<f64>]).execute(connection).await?;
    Ok(i64::try_from(published.rows_affected()).unwrap_or(i64::MAX))
}

/// Says that a process waits for jobs.
pub async fn announce_waiter(connection: &mut PgConnection, waiter: Uuid) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-core/sql/announce_waiter.sql"))).bind(waiter).execute(connection).await.map(drop)
}

/// Says that it does no more.
pub async fn leave_waiter(connection: &mut PgConnection, waiter: Uuid) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-core/sql/leave_waiter.sql"))).bind(waiter).execute(connection).await.map(drop)
}

/// Deletes waiters that ended without saying so; returns how many.
pub async fn prune_waiters(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let pruned = sqlx::query(sql(include_str!("../../queue-worker/sql/prune_waiters.sql"))).execute(connection).await?;
    Ok(i64::try_from(pruned.rows_affected()).unwrap_or(i64::MAX))
}

/// Keeps a log of an attempt that no other call names; returns whether the lease has the job.
pub async fn write_logs(connection: &mut PgConnection, token: Uuid, job: JobId) -> sqlx::Result<i64> {
    let attempt = i32::from(i16::from_ne_bytes([token.as_bytes()[0], fastrand::u8(..)]));
    let write = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/write_logs.sql"))).bind([token]).bind([job]).bind([attempt]);
    write.bind([0_i64]).bind(["logged"]).fetch_one(connection).await
}

/// Deletes logs of jobs that are gone; returns whether it saw any.
pub async fn prune_logs(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar::<_, Option<i64>>(sql(include_str!("../../queue-worker/sql/prune_logs.sql"))).bind(0_i64).bind(1000);
    Ok(i64::from(prune.fetch_one(connection).await?.is_some()))
}

/// Journals a step that no other call names; returns whether the lease has the job.
pub async fn journal(connection: &mut PgConnection, token: Uuid, job: JobId) -> sqlx::Result<i64> {
    journal_by(connection, include_str!("../../queue-worker/sql/journal.sql"), token, job).await
}

/// The same by the statement for steps that are new.
pub async fn journal_fresh(connection: &mut PgConnection, token: Uuid, job: JobId) -> sqlx::Result<i64> {
    journal_by(connection, include_str!("../../queue-worker/sql/journal_fresh.sql"), token, job).await
}

async fn journal_by(connection: &mut PgConnection, statement: &'static str, token: Uuid, job: JobId) -> sqlx::Result<i64> {
    let write = sqlx::query(sql(statement)).bind([token]).bind([job]);
    let write = write.bind([Uuid::new_v4().to_string()]).bind([1_i16]).bind([1]).bind([None::<f64>]).bind(["1"]);
    Ok(write.fetch_all(connection).await?.len() as i64)
}

/// The same by the statement for one step.
pub async fn journal_one(connection: &mut PgConnection, token: Uuid, job: JobId) -> sqlx::Result<i64> {
    let write = sqlx::query(sql(include_str!("../../queue-worker/sql/journal_one.sql"))).bind(token).bind(job);
    let write = write.bind(Uuid::new_v4().to_string()).bind(1_i16).bind(1).bind(None::<f64>).bind("1");
    Ok(write.fetch_all(connection).await?.len() as i64)
}

/// Deletes steps of jobs that are gone; returns whether it saw any.
pub async fn prune_steps(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar::<_, Option<i64>>(sql(include_str!("../../queue-worker/sql/prune_steps.sql"))).bind(0_i64).bind(1000);
    Ok(i64::from(prune.fetch_one(connection).await?.is_some()))
}

/// As [`prune_done`], by types.
pub async fn prune_kept(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/prune_kept.sql"))).bind(AHEAD).bind(5000_i64);
    prune.fetch_one(connection).await
}

/// Deletes the history of the tests' type that is over; returns whether it looked.
pub async fn prune_early(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar::<_, bool>(sql(include_str!("../../queue-worker/sql/prune_early.sql")));
    let looked = prune.bind("do").bind(5000_i64).bind(86_400.0).fetch_optional(connection).await?;
    Ok(i64::from(looked.is_some()))
}

/// Deletes dead letters as if their retention were over; returns how many.
pub async fn prune_dead(connection: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/prune_dead.sql"))).bind(AHEAD).bind(5000_i64).fetch_one(connection).await
}

/// Deletes what is over in days that stay, `most` rows of history at a look; returns how many looks that took.
pub async fn prune_days(connection: &mut PgConnection, days: f64, most: i64) -> sqlx::Result<i64> {
    let mut from = Some(i64::MIN);
    let mut looks = 0;
    while let Some(begin) = from {
        let look = sqlx::query_scalar::<_, Option<i64>>(sql(include_str!("../../queue-worker/sql/prune_days.sql")));
        from = look.bind(days * 86_400.0).bind(begin).bind(most).fetch_optional(&mut *connection).await?.flatten();
        looks += 1;
    }
    Ok(looks)
}
