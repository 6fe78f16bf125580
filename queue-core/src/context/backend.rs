//! Database access of attempts: transactions, commits, checkpoints and the journal.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use sqlx::{Postgres, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};
use uuid::Uuid;

use super::{
    ChildEntry, ChildStatus, ChunkEntry, CloseEntry, Fence, JournaledStep, MapProgress, ReceiveResult, SignalEntry, StepEntry, WriteResult,
};
use crate::{
    define::{Ending, Failure, JobId},
    error::Error,
};

/// Database access of an attempt. The worker implements the trait on a connection pool, and the test kit implements it on a test
/// transaction.
#[doc(hidden)]
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// Begins a transaction for the handler or a step of `job`.
    async fn begin(&self, job: JobId) -> Result<OwnedTransaction, Error>;

    /// Writes the ending as the last statement of the transaction, then commits. Queries the outcome of the commit if its response is lost.
    async fn commit(self: Arc<Self>, tx: OwnedTransaction, fence: Fence, ending: Ending) -> CommitResult;

    /// Loads the job's last checkpoint as JSON text, if the job has written one.
    async fn checkpoint(&self, job: JobId) -> Result<Option<String>, Error>;

    /// Loads the journaled steps of the job.
    async fn steps(&self, _: JobId) -> Result<Vec<JournaledStep>, Error> {
        Ok(Vec::new())
    }

    /// Journals a step. The entry is committed on return.
    async fn journal(&self, _: StepEntry) -> WriteResult {
        WriteResult::Refused
    }

    /// Journals a step as the last statement of the transaction, then commits. Queries the outcome of the commit if its response is lost.
    async fn commit_step(self: Arc<Self>, _: OwnedTransaction, _: StepEntry) -> CommitResult {
        CommitResult::Lost
    }

    /// Journals the next signal with the requested name, or the timeout of the wait for the signal. The entry is committed on return.
    async fn receive(&self, _: SignalEntry) -> ReceiveResult {
        ReceiveResult::Refused
    }

    /// Enqueues a child and journals the step that spawned it. Both writes are committed on return. Returns `None` if the lease no longer
    /// lists the job.
    async fn spawn(&self, _: ChildEntry) -> sqlx::Result<Option<JobId>> {
        Err(sqlx::Error::Protocol("no children are spawned here".to_owned()))
    }

    /// Loads the child spawned by a step, if any.
    async fn child(&self, _: JobId, _step: &str) -> sqlx::Result<Option<ChildStatus>> {
        Ok(None)
    }

    /// Loads the progress of the map spawned by a step, optionally with the numbers of batches and spawned jobs. Returns `None` if the
    /// step has not spawned a map.
    async fn gather(&self, _: JobId, _step: &str, _chunks: bool) -> sqlx::Result<Option<MapProgress>> {
        Ok(None)
    }

    /// Begins a transaction that enqueues a batch of a map's jobs. Returns `None` if the backend simulates the jobs instead of enqueueing
    /// them.
    async fn begin_chunk(&self, _: JobId) -> Result<Option<OwnedTransaction>, Error> {
        Err(Error::Database(sqlx::Error::Protocol("no jobs are mapped here".to_owned())))
    }

    /// Records the jobs of a map's batch in the last statement of the transaction, then commits. Returns `false` without writing if the
    /// batch already exists, or `None` if the lease no longer lists the job.
    async fn add_chunk(&self, _: Option<OwnedTransaction>, _: ChunkEntry) -> sqlx::Result<Option<bool>> {
        Ok(None)
    }

    /// Records that all jobs of a map are spawned, and journals the step. Both writes are committed on return. Returns `false` if the
    /// number of spawned jobs differs from the entry's total, or `None` if the lease no longer lists the job.
    async fn close_gather(&self, _: CloseEntry) -> sqlx::Result<Option<bool>> {
        Ok(None)
    }

    /// Loads the results of one batch of a map, in the order of the batch's jobs.
    async fn parts(&self, _: JobId, _step: &str, _chunk: i32) -> sqlx::Result<Vec<ChildStatus>> {
        Ok(Vec::new())
    }

    /// Stores the log of an attempt that is ending. Waits briefly for the write if `may_wait` is set, and never fails. The default
    /// implementation, used by the test kit, stores nothing.
    async fn keep_log(&self, _: LogEntry, _may_wait: bool) {}
}

/// Transaction that the handler owns until the transaction ends.
#[doc(hidden)]
#[derive(Debug)]
pub enum OwnedTransaction {
    /// Transaction on a connection of the worker's pool.
    Pooled(Transaction<'static, Postgres>),
    /// Transaction of a test or a trial run, used by one attempt at a time.
    Lent(OwnedMutexGuard<Transaction<'static, Postgres>>),
}

/// Transaction that a test or a trial run shares with its attempts. The mutex admits one attempt at a time.
#[doc(hidden)]
pub type LentTransaction = Arc<Mutex<Transaction<'static, Postgres>>>;

/// Log of an attempt, with the lease under which the log is written.
#[doc(hidden)]
#[derive(Debug)]
pub struct LogEntry {
    /// Token of the lease that lists the job; `None` if the attempt has already ended its job in a transaction.
    pub token: Option<Uuid>,
    pub id: JobId,
    pub attempt: i16,
    /// Number of dropped or truncated lines.
    pub cut: u64,
    pub text: String,
}

/// Outcome of a commit by a handler or a step.
#[doc(hidden)]
#[derive(Debug)]
pub enum CommitResult {
    /// The commit succeeded.
    Written,
    /// The transaction was rolled back because the lease no longer lists the job.
    Lost,
    /// The transaction was rolled back for another reason. The lease still lists the job.
    Undone(Failure),
    /// The outcome is unknown because the database could not be queried after the commit.
    Unknown(Failure),
}
