//! Runs the statements that operators, workers and handlers use for limits.

use sqlx::PgConnection;

use crate::protocol::{Lease, sql};

/// Sets a concurrency limit.
pub async fn set_limit(connection: &mut PgConnection, name: &str, concurrency: i32) -> sqlx::Result<()> {
    let set = sqlx::query(sql(include_str!("../../queue-core/sql/set_limit.sql"))).bind(name).bind(concurrency);
    let set = set.bind(None::<i32>).bind(None::<i64>).bind(None::<i32>).bind(None::<&str>).bind(None::<bool>);
    set.execute(connection).await.map(drop)
}

/// Removes a limit that an operator has set. Returns whether the limit existed.
pub async fn unset_limit(connection: &mut PgConnection, name: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar(sql(include_str!("../../queue-core/sql/unset_limit.sql"))).bind(name).fetch_one(connection).await
}

/// Declares a concurrency limit of the job type `do`, as the code of a job type does. Returns whether the limit is new.
pub async fn declare_limit(connection: &mut PgConnection, name: &str, concurrency: i32) -> sqlx::Result<bool> {
    let declare = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/declare_limits.sql")))
        .bind(["do"])
        .bind(Vec::<&str>::new())
        .bind(["do"])
        .bind([name])
        .bind([name])
        .bind([concurrency])
        .bind([None::<i32>])
        .bind([None::<i64>])
        .bind([None::<i32>])
        .bind([false]);
    declare.fetch_one(connection).await
}

/// Closes a limit for `ms` milliseconds. Returns the number of closed limits.
pub async fn slow_down(connection: &mut PgConnection, name: &str, ms: f64) -> sqlx::Result<i64> {
    let limit_id: i64 = sqlx::query_scalar("select queue.hash($1)").bind(name).fetch_one(&mut *connection).await?;
    let slow = sqlx::query(sql(include_str!("../../queue-worker/sql/slow_down.sql"))).bind([limit_id]).bind(ms);
    Ok(i64::try_from(slow.execute(connection).await?.rows_affected()).unwrap_or(i64::MAX))
}

/// Makes a lease durable and loads its jobs. Returns the number of jobs.
pub async fn confirm(connection: &mut PgConnection, lease: &Lease) -> sqlx::Result<usize> {
    let jobs = &lease.jobs;
    let confirm = sqlx::query(sql(include_str!("../../queue-worker/sql/confirm.sql")))
        .bind(lease.token)
        .bind(jobs.iter().map(|job| job.lane).collect::<Vec<_>>())
        .bind(vec![1_i64; jobs.len()])
        .bind(jobs.iter().map(|job| job.id).collect::<Vec<_>>())
        .bind(jobs.iter().map(|job| job.attempts).collect::<Vec<_>>())
        .bind(jobs.iter().map(|job| job.crashes).collect::<Vec<_>>())
        .bind(i32::MAX);
    Ok(confirm.fetch_all(connection).await?.len())
}

/// Deletes recorded starts that are older than the longest window of their limit. Returns the number of deleted rows.
pub async fn prune_rates(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let prune = sqlx::query(sql(include_str!("../../queue-worker/sql/prune_rates.sql")));
    Ok(i64::try_from(prune.execute(connection).await?.rows_affected()).unwrap_or(i64::MAX))
}
