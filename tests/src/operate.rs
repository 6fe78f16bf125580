//! Functions that each run one statement of a producer, an operator or housekeeping, or one write of a running job. The module
//! [`protocol`](crate::protocol) contains the other statements of workers.

use queue_core::JobId;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::protocol::sql;

/// Enqueues a job that is due now, or in an hour if `later` is true.
pub async fn enqueue(connection: &mut PgConnection, queue: &str, priority: i16, later: bool) -> sqlx::Result<JobId> {
    enqueue_by(sql(include_str!("../../queue-core/sql/enqueue.sql")), connection, queue, priority, later).await
}

/// Enqueues a job with relaxed durability. The commit does not wait for the WAL flush.
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

/// Enqueues a job under a uniqueness key, an ordering key, or both. If a waiting job has the same uniqueness key, its payload is replaced
/// instead. Returns the job's id, and whether the job is new.
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

/// Enqueues a job under an ordering key, as a driver for another language does.
pub async fn enqueue_text(connection: &mut PgConnection, key: &str) -> sqlx::Result<JobId> {
    let options = serde_json::json!({ "max_attempts": 3, "key": key });
    let enqueue = sqlx::query_scalar(sql(include_str!("../../queue-core/sql/enqueue_text.sql")));
    enqueue.bind("do").bind(PAYLOAD).bind(options.to_string()).fetch_one(connection).await
}

const PAYLOAD: &str = r#"{"act":{"Ok":"done"}}"#;

/// Returns the lanes of the given queues and priorities, creating missing lanes.
pub async fn ensure_lanes(connection: &mut PgConnection, lanes: &[(&str, i16)]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar(sql(include_str!("../../queue-core/sql/ensure_lanes.sql")))
        .bind(lanes.iter().map(|(queue, _)| *queue).collect::<Vec<_>>())
        .bind(vec!["do"; lanes.len()])
        .bind(lanes.iter().map(|(_, priority)| *priority).collect::<Vec<_>>())
        .bind(false)
        .fetch_one(connection)
        .await
}

/// Enqueues one job for each lane in `jobs`. A job is due in an hour if its flag is true, and now otherwise.
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

/// Releases leases whose claim received no reply. Returns the number of jobs.
pub async fn give_back(connection: &mut PgConnection, tokens: &[Uuid]) -> sqlx::Result<i64> {
    let done = sqlx::query(sql(include_str!("../../queue-worker/sql/give_back.sql"))).bind(tokens).execute(connection).await?;
    Ok(i64::try_from(done.rows_affected()).unwrap_or(i64::MAX))
}

/// Limits the lease deadlines of workers to one lease duration from now. Returns the number of workers whose deadline was shortened.
pub async fn limit_beats(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let done = sqlx::query(sql(include_str!("../../queue-worker/sql/limit_heartbeats.sql"))).execute(connection).await?;
    Ok(i64::try_from(done.rows_affected()).unwrap_or(i64::MAX))
}

/// Promotes up to `most` due jobs per state. Returns the number of promoted jobs.
pub async fn promote(connection: &mut PgConnection, most: i64) -> sqlx::Result<i64> {
    let promote = sqlx::query_as(sql(include_str!("../../queue-worker/sql/promote.sql"))).bind(most);
    let queues: Vec<(String, i64)> = promote.fetch_all(connection).await?;
    Ok(queues.iter().map(|(_, jobs)| jobs).sum())
}

/// Unblocks ordering keys that have hints. Returns the number of jobs moved.
pub async fn unblock(connection: &mut PgConnection) -> sqlx::Result<i32> {
    let unblock = sqlx::query(sql(include_str!("../../queue-worker/sql/unblock.sql"))).bind(0_i64).bind(1000);
    let unblock = unblock.bind(0_i64).bind(0_i64).bind(0_i64).bind(0_i64);
    unblock.fetch_one(connection).await?.try_get("moved")
}

/// Expires jobs that were not started in time. Returns the number of jobs.
pub async fn expire_due(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let expire =
        sqlx::query(sql(include_str!("../../queue-worker/sql/expire_due.sql"))).bind(None::<chrono::DateTime<chrono::Utc>>).bind(1000);
    let expired: Vec<JobId> = expire.fetch_one(connection).await?.try_get("expired")?;
    Ok(i64::try_from(expired.len()).unwrap_or(i64::MAX))
}

/// Requeues dead letters. Returns the requeued jobs.
pub async fn requeue(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.requeue_all($1) c")).bind(ids).fetch_all(connection).await
}

/// Cancels waiting jobs. Returns the cancelled jobs.
pub async fn cancel(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.cancel_waiting_all($1) c")).bind(ids).fetch_all(connection).await
}

/// Discards dead letters. Returns the discarded jobs.
pub async fn discard(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.discard_all($1) c")).bind(ids).fetch_all(connection).await
}

/// Requeues a finished job. Returns whether the job was requeued.
pub async fn reopen(connection: &mut PgConnection, id: JobId) -> sqlx::Result<bool> {
    sqlx::query_scalar(sql("select queue.reopen($1)")).bind(id).fetch_one(connection).await
}

/// Deregisters a worker cleanly.
pub async fn retire(connection: &mut PgConnection, worker: Uuid) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-worker/sql/retire.sql"))).bind(worker).execute(connection).await.map(drop)
}

/// Writes the idle row of a worker that waits for jobs in any queue.
pub async fn sleep(connection: &mut PgConnection, worker: Uuid) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-worker/sql/sleep.sql"))).bind(worker).bind(vec!["*"]).execute(connection).await.map(drop)
}

/// Deletes the idle row of a worker.
pub async fn wake_up(connection: &mut PgConnection, worker: Uuid) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-worker/sql/wake_up.sql"))).bind(worker).execute(connection).await.map(drop)
}

/// Deletes history in the default partitions, as if its retention had ended. Returns the number of jobs.
pub async fn prune_done(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/prune_done.sql"))).bind(AHEAD).bind(5000_i64);
    prune.fetch_one(connection).await
}

/// Retention of minus thirty days, in seconds. With this value, even the history of future days is due for deletion.
const AHEAD: f64 = -30.0 * 86_400.0;

/// Deletes the rows of workers that hold no lease and whose heartbeat expired more than an hour ago.
pub async fn prune_workers(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-worker/sql/prune_workers.sql")))
        .bind([] as [uuid::Uuid; 0])
        .execute(connection)
        .await
        .map(drop)
}

/// Drops the oldest day partition as if its retention had ended. Returns whether a partition was dropped.
pub async fn drop_day(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("select queue.drop_day($1 * interval '1 second') is not null").bind(AHEAD).fetch_one(connection).await
}

/// Creates the day partitions for today. Returns 1 if they did not exist, otherwise 0.
pub async fn add_days(connection: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/add_days.sql"))).bind(0).fetch_one(connection).await
}

/// Reschedules waiting jobs to an hour from now. Returns the rescheduled jobs.
pub async fn reschedule(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.reschedule_all($1, clock_timestamp() + interval '1 hour') c"))
        .bind(ids)
        .fetch_all(connection)
        .await
}

/// Makes scheduled jobs ready. Returns the jobs that became ready.
pub async fn run_now(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.run_now_all($1) c")).bind(ids).fetch_all(connection).await
}

/// Changes the priority of waiting jobs. Returns the changed jobs.
pub async fn set_priority(connection: &mut PgConnection, ids: &[JobId], priority: i32) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.set_priority_all($1, $2) c")).bind(ids).bind(priority).fetch_all(connection).await
}

/// Requests the cancellation of running jobs. Returns the jobs to be cancelled.
pub async fn cancel_running(connection: &mut PgConnection, ids: &[JobId]) -> sqlx::Result<Vec<JobId>> {
    sqlx::query_scalar(sql("select c from queue.cancel_running_all($1) c")).bind(ids).fetch_all(connection).await
}

/// Sets the retention of the job type `do`, in seconds. Returns the number of changed types.
pub async fn keep_types(connection: &mut PgConnection, seconds: f64) -> sqlx::Result<i64> {
    let statement = sqlx::query(sql(include_str!("../../queue-worker/sql/keep_types.sql"))).bind(vec!["do"]).bind(vec![Some(seconds)]);
    Ok(i64::try_from(statement.execute(connection).await?.rows_affected()).unwrap_or(i64::MAX))
}

/// Checks up to 1000 uniqueness keys and deletes those that no job holds. Returns the number of deleted keys.
pub async fn forget_keys(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let forget = sqlx::query_scalar::<_, i32>(sql(include_str!("../../queue-worker/sql/forget_keys.sql"))).bind(1000);
    forget.fetch_one(connection).await.map(i64::from)
}

/// Frees ordering keys whose head job no longer exists. Returns the number of freed keys.
pub async fn free_keys(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let free =
        sqlx::query(sql(include_str!("../../queue-worker/sql/free_keys.sql"))).bind(i64::MIN).bind(1000).fetch_all(connection).await?;
    let heads = free.iter().map(|row| row.try_get::<Option<JobId>, _>("head")).collect::<sqlx::Result<Vec<_>>>()?;
    Ok(i64::try_from(heads.iter().flatten().count()).unwrap_or(i64::MAX))
}

/// Publishes the queue of a job type that no test enqueues. Returns the number of changed types.
pub async fn publish_types(connection: &mut PgConnection, queue: &str) -> sqlx::Result<i64> {
    let publish = sqlx::query(sql(include_str!("../../queue-worker/sql/publish_types.sql"))).bind(["published"]).bind([queue]);
    let published = publish.bind([100_i16]).bind([20_i16]).bind([None::<f64>]).execute(connection).await?;
    Ok(i64::try_from(published.rows_affected()).unwrap_or(i64::MAX))
}

/// Registers a process that waits for jobs to finish.
pub async fn announce_waiter(connection: &mut PgConnection, waiter: Uuid) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-core/sql/announce_waiter.sql"))).bind(waiter).execute(connection).await.map(drop)
}

/// Deregisters a waiting process.
pub async fn leave_waiter(connection: &mut PgConnection, waiter: Uuid) -> sqlx::Result<()> {
    sqlx::query(sql(include_str!("../../queue-core/sql/leave_waiter.sql"))).bind(waiter).execute(connection).await.map(drop)
}

/// Deletes the rows of waiting processes that ended without deregistering. Returns the number of rows.
pub async fn prune_waiters(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let pruned = sqlx::query(sql(include_str!("../../queue-worker/sql/prune_waiters.sql"))).execute(connection).await?;
    Ok(i64::try_from(pruned.rows_affected()).unwrap_or(i64::MAX))
}

/// Writes a log for the job under a random attempt number, so that repeated calls rarely write the same row. Returns the number of logs
/// written, which is zero if the lease does not contain the job.
pub async fn write_logs(connection: &mut PgConnection, token: Uuid, job: JobId) -> sqlx::Result<i64> {
    let attempt = i32::from(i16::from_ne_bytes([token.as_bytes()[0], fastrand::u8(..)]));
    let write = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/write_logs.sql"))).bind([token]).bind([job]).bind([attempt]);
    write.bind([0_i64]).bind(["logged"]).fetch_one(connection).await
}

/// Deletes the logs of deleted jobs. Returns 1 if there were any logs to scan, otherwise 0.
pub async fn prune_logs(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar::<_, Option<i64>>(sql(include_str!("../../queue-worker/sql/prune_logs.sql"))).bind(0_i64).bind(1000);
    Ok(i64::from(prune.fetch_one(connection).await?.is_some()))
}

/// Journals a step with a unique name. Returns the number of journaled steps, which is zero if the lease does not list the job.
pub async fn journal(connection: &mut PgConnection, token: Uuid, job: JobId) -> sqlx::Result<i64> {
    journal_by(connection, include_str!("../../queue-worker/sql/journal.sql"), token, job).await
}

/// Journals a step like [`journal`], with the statement for new steps.
pub async fn journal_fresh(connection: &mut PgConnection, token: Uuid, job: JobId) -> sqlx::Result<i64> {
    journal_by(connection, include_str!("../../queue-worker/sql/journal_fresh.sql"), token, job).await
}

async fn journal_by(connection: &mut PgConnection, statement: &'static str, token: Uuid, job: JobId) -> sqlx::Result<i64> {
    let write = sqlx::query(sql(statement)).bind([token]).bind([job]);
    let write = write.bind([Uuid::new_v4().to_string()]).bind([1_i16]).bind([1]).bind([None::<f64>]).bind(["1"]);
    Ok(write.fetch_all(connection).await?.len() as i64)
}

/// Journals a step like [`journal`], with the statement for a single step.
pub async fn journal_one(connection: &mut PgConnection, token: Uuid, job: JobId) -> sqlx::Result<i64> {
    let write = sqlx::query(sql(include_str!("../../queue-worker/sql/journal_one.sql"))).bind(token).bind(job);
    let write = write.bind(Uuid::new_v4().to_string()).bind(1_i16).bind(1).bind(None::<f64>).bind("1");
    Ok(write.fetch_all(connection).await?.len() as i64)
}

/// Deletes the steps of deleted jobs. Returns 1 if there were any steps to scan, otherwise 0.
pub async fn prune_steps(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar::<_, Option<i64>>(sql(include_str!("../../queue-worker/sql/prune_steps.sql"))).bind(0_i64).bind(1000);
    Ok(i64::from(prune.fetch_one(connection).await?.is_some()))
}

/// Deletes history like [`prune_done`], with the statement that also applies the separate retentions of job types.
pub async fn prune_kept(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/prune_kept.sql"))).bind(AHEAD).bind(5000_i64);
    prune.fetch_one(connection).await
}

/// Deletes finished jobs of the type `do` whose retention has ended, if the type's retention is shorter than one day. Returns 1 if the
/// statement scanned history. Returns 0 if the type has no such retention or if another transaction is scanning.
pub async fn prune_early(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query_scalar::<_, bool>(sql(include_str!("../../queue-worker/sql/prune_early.sql")));
    let found = prune.bind("do").bind(5000_i64).bind(86_400.0).fetch_optional(connection).await?;
    Ok(i64::from(found.is_some()))
}

/// Deletes dead letters as if their retention had ended. Returns the number of jobs.
pub async fn prune_dead(connection: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/prune_dead.sql"))).bind(AHEAD).bind(5000_i64).fetch_one(connection).await
}

/// Deletes jobs whose retention has ended from retained partitions that are older than `days` days. Each scan reads up to `most`
/// rows of `done`. Returns the number of scans.
pub async fn prune_days(connection: &mut PgConnection, days: f64, most: i64) -> sqlx::Result<i64> {
    let mut from = Some(i64::MIN);
    let mut calls = 0;
    while let Some(begin) = from {
        let query = sqlx::query_scalar::<_, Option<i64>>(sql(include_str!("../../queue-worker/sql/prune_days.sql")));
        from = query.bind(days * 86_400.0).bind(begin).bind(most).fetch_optional(&mut *connection).await?.flatten();
        calls += 1;
    }
    Ok(calls)
}
