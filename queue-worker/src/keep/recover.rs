//! Recovers the jobs of workers whose heartbeat has expired, and finds running jobs whose cancellation was requested.

use queue_core::{JobId, Store};
use sqlx::{Connection as _, FromRow, PgConnection, Row as _};
use uuid::Uuid;

use crate::{
    error::warn_throttled,
    live::{MOST_CRASHES, bounded},
    settle::add_end_hints,
};

/// Loads the leases of a worker. Returns a lease once for each of its jobs whose cancellation was requested. Returns any other lease once,
/// without a job.
pub(super) async fn load_own_leases(connection: &mut PgConnection, store: Store, worker: Uuid) -> sqlx::Result<Vec<(Uuid, Option<JobId>)>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/own_leases.sql"))).bind(worker);
    bounded(statement.fetch_all(connection)).await
}

/// Releases leases that were claimed for this worker but are unknown to it. Their jobs become ready again, or are cancelled if cancellation
/// was requested. No attempt is charged.
pub(super) async fn return_leases(connection: &mut PgConnection, store: Store, tokens: &[Uuid]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/give_back.sql"))).bind(tokens);
    bounded(statement.execute(connection)).await.map(drop)
}

/// Limits the heartbeat expiry of each worker to one lease TTL from now.
pub(super) async fn limit_heartbeats(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/limit_heartbeats.sql")));
    bounded(statement.execute(connection)).await.map(drop)
}

/// Maximum number of leases that one call recovers.
const MAX_LEASES: i64 = 100;

/// Recovered jobs of one queue and job type.
#[derive(FromRow)]
pub(super) struct RecoveredJobs {
    pub(super) queue: String,
    pub(super) job_type: String,
    pub(super) jobs: i64,
    /// Jobs that became dead letters. `None` if there are none.
    pub(super) dead: Option<Vec<JobId>>,
    pub(super) cancelled: i64,
    /// Jobs that became dead letters or were cancelled. `None` if there are none.
    over: Option<Vec<JobId>>,
}

/// Recovers the jobs of workers whose heartbeat has expired. Returns the recovered jobs by queue and job type.
pub(super) async fn recover(connection: &mut PgConnection, store: Store) -> sqlx::Result<Vec<RecoveredJobs>> {
    let silent = || sqlx::query(store.sql(include_str!("../../sql/expired_leases.sql"))).bind(MAX_LEASES);
    // Leases to recover are rare, so this check usually saves a transaction with several statements.
    if silent().fetch_optional(&mut *connection).await?.is_none() {
        return Ok(Vec::new());
    }
    let mut tx = connection.begin().await?;
    let found = silent().fetch_all(&mut *tx).await?;
    if found.is_empty() {
        tx.rollback().await?;
        return Ok(Vec::new());
    }
    let column = |nth: usize| found.iter().map(|row| row.try_get(nth)).collect::<sqlx::Result<Vec<Uuid>>>();
    let (tokens, workers) = (column(0)?, column(1)?);
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/recover.sql"))).bind(&tokens).bind(MOST_CRASHES);
    let recovered: Vec<RecoveredJobs> = statement.fetch_all(&mut *tx).await?;
    let finished: Vec<JobId> = recovered.iter().filter_map(|of| of.over.as_ref()).flatten().copied().collect();
    add_end_hints(&mut tx, store, &finished, None).await?;
    tx.commit().await?;
    // Deletes the worker rows after the commit. If two workers recover the leases of a silent worker concurrently, the worker that
    // deletes last sees that no lease is left.
    if let Err(error) = delete_workers(connection, store, &workers).await {
        warn_throttled(&error, "cannot delete the rows of silent workers; pruning deletes them within an hour");
    }
    Ok(recovered)
}

/// Deletes the rows of expired workers that have no leases. A row is deleted only if the worker is in `recovered` or expired more than an
/// hour ago. Also deletes the notification requests of expired workers.
pub(super) async fn delete_workers(connection: &mut PgConnection, store: Store, recovered: &[Uuid]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/prune_workers.sql"))).bind(recovered);
    bounded(statement.execute(connection)).await.map(drop)
}
