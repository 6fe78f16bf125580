//! Commits a handler's own transaction. The last statement before the commit writes the job's verdict. If the response to a commit is
//! lost, the commit's outcome is queried.
//!
//! The verdict is written with the same statement and fence as in the settle loop. If the lease no longer lists the job, the transaction
//! is rolled back. The commit runs in a separate task, so that no timeout interrupts it.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use queue_core::{
    Error, JobId, Store,
    runner::{
        Backend, ChildEntry, ChildStatus, ChunkEntry, CloseEntry, CommitResult, Ending, Fence, JournaledStep, LogEntry, MapProgress,
        OwnedTransaction, ReceiveResult, SignalEntry, StepEntry, WriteResult,
    },
};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use super::{
    children,
    handler_tx::{PREPARE_VERDICT, RECONCILE_INTERVAL, RECONCILE_TIMEOUT},
    journal::{JournalSender, commit_step, load_steps},
    logs::LogSender,
    maps,
    receive::SignalSender,
    send::{is_data_error, settle_within},
    settlement::Settlement,
};
use crate::live::{StoreConnection, bounded, jittered};

/// Statement that begins a handler's transaction. A stricter isolation level would cause a serialization failure whenever another job in
/// the same lease is settled.
const BEGIN: &str = "begin isolation level read committed read write";

/// Backend that runs the database operations of attempts.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseBackend {
    pub(crate) pool: PgPool,
    pub(crate) store: Store,
    pub(crate) logs: LogSender,
    pub(crate) journal: JournalSender,
    pub(crate) signals: SignalSender,
}

#[async_trait]
impl Backend for DatabaseBackend {
    async fn begin(&self, _: JobId) -> Result<OwnedTransaction, Error> {
        Ok(OwnedTransaction::Pooled(self.pool.begin_with(BEGIN).await?))
    }

    async fn commit(self: Arc<Self>, tx: OwnedTransaction, fence: Fence, ending: Ending) -> CommitResult {
        match tx {
            OwnedTransaction::Pooled(tx) => self.settle_and_commit(tx, fence, ending).await,
            // Only trials and the test kit use `Lent`, and both have a different backend.
            OwnedTransaction::Lent(_) => CommitResult::Lost,
        }
    }

    async fn checkpoint(&self, job: JobId) -> Result<Option<String>, Error> {
        let statement = sqlx::query_scalar(self.store.sql(include_str!("../../sql/checkpoint.sql"))).bind(job);
        let checkpoint: Option<Option<String>> = statement.fetch_optional(&self.pool).await?;
        Ok(checkpoint.flatten())
    }

    async fn steps(&self, job: JobId) -> Result<Vec<JournaledStep>, Error> {
        load_steps(&self.pool, self.store, job).await
    }

    async fn journal(&self, entry: StepEntry) -> WriteResult {
        self.journal.write(entry).await
    }

    async fn commit_step(self: Arc<Self>, tx: OwnedTransaction, entry: StepEntry) -> CommitResult {
        commit_step((&self.pool, self.store), tx, entry).await
    }

    async fn receive(&self, request: SignalEntry) -> ReceiveResult {
        self.signals.request(request).await
    }

    async fn spawn(&self, child: ChildEntry) -> sqlx::Result<Option<JobId>> {
        children::insert_child(&self.pool, self.store, &child).await
    }

    async fn child(&self, parent: JobId, step: &str) -> sqlx::Result<Option<ChildStatus>> {
        children::load_child(&self.pool, self.store, parent, step).await
    }

    async fn gather(&self, parent: JobId, step: &str, chunks: bool) -> sqlx::Result<Option<MapProgress>> {
        maps::load_map(&self.pool, self.store, parent, step, chunks).await
    }

    async fn begin_chunk(&self, job: JobId) -> Result<Option<OwnedTransaction>, Error> {
        self.begin(job).await.map(Some)
    }

    async fn add_chunk(&self, tx: Option<OwnedTransaction>, entry: ChunkEntry) -> sqlx::Result<Option<bool>> {
        match tx {
            Some(OwnedTransaction::Pooled(tx)) => maps::add_batch(tx, self.store, entry).await,
            // Only trials and the test kit use `Lent`, and both have a different backend.
            Some(OwnedTransaction::Lent(_)) | None => Ok(None),
        }
    }

    async fn close_gather(&self, entry: CloseEntry) -> sqlx::Result<Option<bool>> {
        maps::close_map(&self.pool, self.store, &entry).await
    }

    async fn parts(&self, parent: JobId, step: &str, chunk: i32) -> sqlx::Result<Vec<ChildStatus>> {
        maps::load_parts(&self.pool, self.store, parent, step, chunk).await
    }

    async fn keep_log(&self, entry: LogEntry, may_wait: bool) {
        self.logs.write(entry, may_wait).await;
    }
}

impl DatabaseBackend {
    async fn settle_and_commit(&self, mut tx: Transaction<'static, Postgres>, fence: Fence, ending: Ending) -> CommitResult {
        match write_verdict(&mut tx, self.store, Settlement::within(fence, ending)).await {
            Ok(true) => {}
            Ok(false) => {
                // The transaction is never committed, so even a failed rollback discards the writes.
                let _ = bounded(tx.rollback()).await;
                return CommitResult::Lost;
            }
            // The commit was not sent, so the transaction is not committed.
            Err(error) => return undone(error),
        }
        match bounded(tx.commit()).await {
            Ok(()) => CommitResult::Written,
            Err(error) => self.reconcile(fence, error).await,
        }
    }

    /// Determines the outcome of a commit whose response was lost.
    async fn reconcile(&self, fence: Fence, error: sqlx::Error) -> CommitResult {
        tracing::warn!(job = %fence.id, error = queue_core::message(&error), "no answer to the commit of a handler; querying its outcome");
        let (mut connection, deadline) = (StoreConnection::new(&self.pool, "reconcile"), Instant::now() + RECONCILE_TIMEOUT);
        loop {
            let location = locate_job(&mut connection, self.store, fence).await;
            match connection.note(location) {
                Ok(JobLocation::Lease) => break undone(error),
                Ok(JobLocation::History) => break CommitResult::Written,
                Ok(JobLocation::Recovered) => break CommitResult::Lost,
                Err(_) if Instant::now() > deadline => break CommitResult::Unknown(Error::Database(error).into()),
                Err(_) => tokio::time::sleep(jittered(RECONCILE_INTERVAL)).await,
            }
        }
    }
}

fn undone(error: sqlx::Error) -> CommitResult {
    CommitResult::Undone(Error::Database(error).into())
}

/// Writes the verdict as the last statement of the transaction. Returns `false` if the lease no longer lists the job.
async fn write_verdict(tx: &mut PgConnection, store: Store, mut settlement: Settlement) -> sqlx::Result<bool> {
    sqlx::raw_sql(PREPARE_VERDICT).execute(&mut *tx).await?;
    loop {
        match settle_within(tx, store, &settlement).await {
            Err(error) if is_data_error(&error) && settlement.ending.redact() => {
                let (job, error) = (settlement.id, queue_core::message(&error));
                tracing::warn!(%job, error, "text of the verdict rejected by the server; settling without it");
                bounded(sqlx::raw_sql("rollback to savepoint queue_verdict").execute(&mut *tx)).await?;
            }
            other => return other,
        }
    }
}

/// Location of a job after a commit whose response was lost.
enum JobLocation {
    /// The lease still lists the job. The transaction was not committed and cannot be committed any more.
    Lease,
    /// This attempt ended the job, which is now in the history. The transaction was committed.
    History,
    /// Another worker has recovered the job. The transaction was not committed.
    Recovered,
}

/// Locates a job with two statements. The first statement waits for the lock on the lease. The transaction with the verdict holds this
/// lock until its commit ends. The second statement must be separate to see the result of the commit.
async fn locate_job(connection: &mut StoreConnection, store: Store, fence: Fence) -> sqlx::Result<JobLocation> {
    let leased = sqlx::query(store.sql(include_str!("../../sql/is_held.sql"))).bind(fence.token).bind(fence.id);
    if bounded(leased.fetch_optional(connection.get().await?)).await?.is_some() {
        return Ok(JobLocation::Lease);
    }
    let ended = sqlx::query_scalar(store.sql(include_str!("../../sql/is_ended_by.sql")));
    let ended = ended.bind(fence.id).bind(fence.attempt).bind(fence.crashes);
    let ended: bool = bounded(ended.fetch_one(connection.get().await?)).await?;
    Ok(if ended { JobLocation::History } else { JobLocation::Recovered })
}
