//! Runs the statements of fair queueing one at a time, from the worker's own SQL files.

use queue_core::JobId;
use sqlx::{FromRow as _, PgConnection, Row as _};
use uuid::Uuid;

use crate::protocol::{ClaimedJob, Lease, sql};

/// Result of a claim from fair queues: the lease, and the fair queue of each claimed job. Both lists are in the order of the claim.
#[derive(Clone, Debug)]
pub struct Served {
    /// Lease with the claimed jobs.
    pub lease: Lease,
    /// Number of each job's fair queue.
    pub fair_ids: Vec<i64>,
}

/// Returns all lanes that are neither fair lanes nor quarantine lanes.
///
/// # Errors
/// Returns a database error if a statement fails.
pub async fn plain_lanes(connection: &mut PgConnection) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar("select distinct lane from queue.lane where not paired and not solo order by lane").fetch_all(connection).await
}

/// Claims up to `most` jobs from the fair queues of all lanes, starting after fair queue number `after`.
///
/// # Errors
/// Returns a database error if a statement fails.
pub async fn claim_fair(connection: &mut PgConnection, worker: Uuid, after: i64, most: i32) -> sqlx::Result<Served> {
    let lanes = plain_lanes(&mut *connection).await?;
    claim_fair_of(connection, worker, &lanes, after, &vec![most; lanes.len()], most).await
}

/// Claims from the fair queues of the given lanes, with a maximum per lane and in total.
///
/// # Errors
/// Returns a database error if a statement fails.
pub async fn claim_fair_of(
    connection: &mut PgConnection,
    worker: Uuid,
    lanes: &[i64],
    after: i64,
    each: &[i32],
    most: i32,
) -> sqlx::Result<Served> {
    let token = Uuid::new_v4();
    let rows = sqlx::query(sql(include_str!("../../queue-worker/sql/claim_fair.sql")))
        .bind(token)
        .bind(worker)
        .bind(lanes)
        .bind(vec![after; lanes.len()])
        .bind(each)
        .bind(most)
        .bind(i32::MAX)
        .fetch_all(connection)
        .await?;
    let jobs = rows.iter().map(ClaimedJob::from_row).collect::<sqlx::Result<_>>()?;
    let fair_ids = rows.iter().map(|row| row.try_get("fair_id")).collect::<sqlx::Result<_>>()?;
    Ok(Served { lease: Lease { token, jobs }, fair_ids })
}

/// Moves up to `most` jobs of each lane into the lane's fair queues. Returns the number of jobs.
///
/// # Errors
/// Returns a database error if a statement fails.
pub async fn move_to_fair_lanes(connection: &mut PgConnection, most: i64) -> sqlx::Result<i64> {
    let lanes = plain_lanes(&mut *connection).await?;
    let statement = sqlx::query(sql(include_str!("../../queue-worker/sql/move_to_fair_lanes.sql")));
    let rows = statement.bind(&lanes).bind(vec![0_i64; lanes.len()]).bind(most).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get::<i64, _>("jobs")).sum()
}

/// Enqueues a job of the type `do` with the fair key `fair`.
///
/// # Errors
/// Returns a database error if a statement fails.
pub async fn enqueue_fair(connection: &mut PgConnection, fair: &str) -> sqlx::Result<JobId> {
    let enqueue = "select queue.enqueue('do', '{\"act\":{\"Ok\":\"done\"}}', jsonb_build_object('max_attempts', 3, 'fair', $1::text))";
    sqlx::query_scalar(enqueue).bind(fair).fetch_one(connection).await
}
