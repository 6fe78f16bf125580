//! Taking back the jobs of silent workers, and seeing which running jobs are to be cancelled.

use queue_core::{JobId, Store};
use sqlx::{Connection as _, FromRow, PgConnection, Row as _};
use uuid::Uuid;

use crate::{
    error::complain,
    live::{MOST_CRASHES, bounded},
    settle::note_ends,
};

/// The leases of this worker, each with the jobs of it that somebody wants cancelled.
pub(super) async fn own_leases(connection: &mut PgConnection, store: Store, worker: Uuid) -> sqlx::Result<Vec<(Uuid, Option<JobId>)>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/own_leases.sql"))).bind(worker);
    bounded(statement.fetch_all(connection)).await
}

/// lease -> ready, uncharged: what was claimed in our name and we know nothing of.
pub(super) async fn give_back(connection: &mut PgConnection, store: Store, tokens: &[Uuid]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/give_back.sql"))).bind(tokens);
    bounded(statement.execute(connection)).await.map(drop)
}

/// Brings the time until which workers are said to live back into what a heartbeat lasts.
pub(super) async fn limit_beats(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/limit_beats.sql")));
    bounded(statement.execute(connection)).await.map(drop)
}

/// The most leases of one recovery.
const MOST: i64 = 100;

/// What was taken back of a queue and a type.
#[derive(FromRow)]
pub(super) struct Recovered {
    pub(super) queue: String,
    pub(super) job_type: String,
    pub(super) jobs: i64,
    /// Those that are dead letters now.
    pub(super) dead: Option<Vec<JobId>>,
    pub(super) cancelled: i64,
    /// Those that are over now.
    over: Option<Vec<JobId>>,
}

/// Takes back the jobs of silent workers; returns which, by queue and type.
pub(super) async fn recover(connection: &mut PgConnection, store: Store) -> sqlx::Result<Vec<Recovered>> {
    let silent = || sqlx::query(store.sql(include_str!("../../sql/silent.sql"))).bind(MOST);
    // Nearly always there is nothing, which is not worth a transaction of several statements.
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
    let recovered: Vec<Recovered> = statement.fetch_all(&mut *tx).await?;
    let over: Vec<JobId> = recovered.iter().filter_map(|of| of.over.as_ref()).flatten().copied().collect();
    note_ends(&mut tx, store, &over, None).await?;
    tx.commit().await?;
    // After the commit, so that of two recoveries of one worker's leases the later sees that nothing is left.
    if let Err(error) = forget_workers(connection, store, &workers).await {
        complain(&error, "cannot delete the rows of silent workers now; that is done within the hour");
    }
    Ok(recovered)
}

/// Deletes the rows of workers that hold nothing, and have been silent for an hour or are among these.
pub(super) async fn forget_workers(connection: &mut PgConnection, store: Store, recovered: &[Uuid]) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/prune_workers.sql"))).bind(recovered);
    bounded(statement.execute(connection)).await.map(drop)
}
