//! Removes unused lanes step by step, as housekeeping does.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::protocol::{ClaimedJob, Lease, sql};

/// Marks as leaving up to `most` lane rows that were inserted more than `seconds` ago. Returns the number of marked rows.
pub async fn leave_lanes(connection: &mut PgConnection, seconds: f64, most: i64) -> sqlx::Result<i64> {
    let leave = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/leave_lanes.sql"))).bind(seconds).bind(most);
    leave.fetch_one(connection).await
}

/// Returns the transactions that marked lanes as leaving and whose marks are visible to every snapshot.
pub async fn unseen_lanes(connection: &mut PgConnection) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/unseen_lanes.sql"))).fetch_all(connection).await
}

/// Advances up to `most` leaving lanes by one step towards their deletion. Returns the number of advanced lane rows.
pub async fn pass_lanes(connection: &mut PgConnection, unseen: &[String], most: i64) -> sqlx::Result<i64> {
    let pass = sqlx::query(sql(include_str!("../../queue-worker/sql/pass_lanes.sql"))).bind(unseen).bind(most);
    Ok(i64::try_from(pass.execute(connection).await?.rows_affected()).unwrap_or(i64::MAX))
}

/// Deletes up to `most` lane rows that have been replaced by new rows. Returns the number of deleted rows.
pub async fn replaced_lanes(connection: &mut PgConnection, most: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/replaced_lanes.sql"))).bind(most).fetch_one(connection).await
}

/// Lane row that may be deleted: the row's lane id, the transaction that marked the lane as leaving, the lane id stored in its jobs, and
/// the first and last job id to scan.
pub type DueLane = (i64, String, i64, i64, i64);

/// Returns the lane rows that have been unused for at least `seconds` and may be deleted.
pub async fn due_lanes(connection: &mut PgConnection, seconds: f64, most: i64) -> sqlx::Result<Vec<DueLane>> {
    let due = sqlx::query_as(sql(include_str!("../../queue-worker/sql/due_lanes.sql"))).bind(seconds).bind(most);
    due.fetch_all(connection).await
}

/// Reads the next `most` jobs after the id `after`, up to the id `to`. Returns the id of the last job read, or `None` if there were fewer
/// than `most` jobs, and the distinct lanes of the jobs.
pub async fn walk_jobs(connection: &mut PgConnection, after: i64, to: i64, most: i64) -> sqlx::Result<(Option<i64>, Vec<i64>)> {
    let walk = sqlx::query_as(sql(include_str!("../../queue-worker/sql/walk_jobs.sql"))).bind(after).bind(to).bind(most);
    walk.fetch_one(connection).await
}

/// Deletes the lane rows in `due` whose scan is complete and has found no job. `used` contains the lanes with jobs, and `to` is the last
/// job id scanned. Returns the number of deleted rows.
pub async fn forget_lanes(connection: &mut PgConnection, due: &[DueLane], used: &[i64], to: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/forget_lanes.sql")))
        .bind(due.iter().map(|due| due.0).collect::<Vec<_>>())
        .bind(due.iter().map(|due| due.1.as_str()).collect::<Vec<_>>())
        .bind(due.iter().map(|due| used.contains(&due.2)).collect::<Vec<_>>())
        .bind(to)
        .fetch_one(connection)
        .await
}

/// Scans all jobs, and deletes the leaving lanes without jobs. Returns the number of deleted lanes.
pub async fn walk_lanes(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let due = due_lanes(connection, -1.0, 1000).await?;
    let (_, used) = walk_jobs(connection, 0, i64::MAX, 100_000).await?;
    forget_lanes(connection, &due, &used, i64::MAX).await
}

/// Claims jobs from the lanes. Jobs of the last `plain` lanes share a lease. The other jobs are claimed as transactional jobs, each under
/// its own lease. Returns the leases.
pub async fn claim_each(connection: &mut PgConnection, worker: Uuid, lanes: &[i64], most: i32, plain: usize) -> sqlx::Result<Vec<Lease>> {
    let (token, each) = (Uuid::new_v4(), &lanes[..lanes.len() - plain]);
    let claim = sqlx::query_as(sql(include_str!("../../queue-worker/sql/claim.sql")))
        .bind(token)
        .bind(worker)
        .bind(lanes)
        .bind(vec![0_i64; lanes.len()])
        .bind(vec![most; lanes.len()])
        .bind(most)
        .bind(i32::MAX)
        .bind(each)
        .bind(i64::MIN)
        .bind(i64::MAX);
    let jobs: Vec<ClaimedJob> = claim.fetch_all(connection).await?;
    let (apart, together): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| each.contains(&job.lane));
    let of = |job: ClaimedJob| Lease { token: Uuid::from_u64_pair(token.as_u64_pair().0, job.id.0.cast_unsigned()), jobs: vec![job] };
    Ok(apart.into_iter().map(of).chain((!together.is_empty()).then_some(Lease { token, jobs: together })).collect())
}
