//! Database access of attempts: transactions, commits, checkpoints, the journal. Implemented by the worker and by the test kit.

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

/// Database access of an attempt. The worker implements it on PostgreSQL, the test kit on a test transaction.
#[doc(hidden)]
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// Begins a transaction that may end this job.
    async fn begin(&self, job: JobId) -> Result<OwnedTransaction, Error>;

    /// Writes the ending as the last statement of the transaction, commits, and resolves the result of the commit.
    async fn commit(self: Arc<Self>, tx: OwnedTransaction, fence: Fence, ending: Ending) -> CommitResult;

    /// Loads the job's last checkpoint as JSON text.
    async fn checkpoint(&self, job: JobId) -> Result<Option<String>, Error>;

    /// Loads the journaled steps of the job.
    async fn steps(&self, _: JobId) -> Result<Vec<JournaledStep>, Error> {
        Ok(Vec::new())
    }

    /// Journals a step; it is committed on return.
    async fn journal(&self, _: StepEntry) -> WriteResult {
        WriteResult::Refused
    }

    /// Journals a step as the last statement of the transaction, commits, and resolves the result of the commit.
    async fn commit_step(self: Arc<Self>, _: OwnedTransaction, _: StepEntry) -> CommitResult {
        CommitResult::Lost
    }

    /// Journals the next signal with a name, or the timeout of the wait for it; it is committed on return.
    async fn receive(&self, _: SignalEntry) -> ReceiveResult {
        ReceiveResult::Refused
    }

    /// Enqueues a child and journals the step; both are committed on return. Returns `None` if the lease no longer lists the job.
    async fn spawn(&self, _: ChildEntry) -> sqlx::Result<Option<JobId>> {
        Err(sqlx::Error::Protocol("no children are spawned here".to_owned()))
    }

    /// Loads the child spawned by this step, if any.
    async fn child(&self, _: JobId, _step: &str) -> sqlx::Result<Option<ChildStatus>> {
        Ok(None)
    }

    /// Loads the progress of this step's map, optionally with its chunks; `None` if there is no map.
    async fn gather(&self, _: JobId, _step: &str, _chunks: bool) -> sqlx::Result<Option<MapProgress>> {
        Ok(None)
    }

    /// Begins a transaction that enqueues a chunk of a map; `None` if this backend enqueues nothing.
    async fn begin_chunk(&self, _: JobId) -> Result<Option<OwnedTransaction>, Error> {
        Err(Error::Database(sqlx::Error::Protocol("no jobs are mapped here".to_owned())))
    }

    /// Records the chunk's jobs as the last statement of the transaction, and commits. Returns `false`, without writing, if the chunk
    /// already exists. Returns `None` if the lease no longer lists the job.
    async fn add_chunk(&self, _: Option<OwnedTransaction>, _: ChunkEntry) -> sqlx::Result<Option<bool>> {
        Ok(None)
    }

    /// Records that all jobs of a map are spawned and journals the step; both are committed on return. Returns `false` if the totals
    /// differ, `None` if the lease no longer lists the job.
    async fn close_gather(&self, _: CloseEntry) -> sqlx::Result<Option<bool>> {
        Ok(None)
    }

    /// Loads the results of a chunk's jobs in their order.
    async fn parts(&self, _: JobId, _step: &str, _chunk: i32) -> sqlx::Result<Vec<ChildStatus>> {
        Ok(Vec::new())
    }

    /// Stores the log of an attempt that ends. Waits briefly for the write if `may_wait`, and never fails. The test kit stores none.
    async fn keep_log(&self, _: LogEntry, _may_wait: bool) {}
}

/// Transaction owned by the handler until it ends.
#[doc(hidden)]
#[derive(Debug)]
pub enum OwnedTransaction {
    /// On a connection of the worker's pool.
    Pooled(Transaction<'static, Postgres>),
    /// On the transaction of a test.
    Lent(OwnedMutexGuard<Transaction<'static, Postgres>>),
}

/// Transaction of a test that its attempts use one after the other.
#[doc(hidden)]
pub type LentTransaction = Arc<Mutex<Transaction<'static, Postgres>>>;

/// Log of an attempt.
#[doc(hidden)]
#[derive(Debug)]
pub struct LogEntry {
    /// Lease that lists the job; `None` if the attempt has already ended its job in a transaction.
    pub token: Option<Uuid>,
    pub id: JobId,
    pub attempt: i16,
    /// Number of omitted or truncated lines.
    pub cut: u64,
    pub text: String,
}

/// Result of a commit.
#[doc(hidden)]
#[derive(Debug)]
pub enum CommitResult {
    /// Committed.
    Written,
    /// Rolled back: the lease no longer lists the job.
    Lost,
    /// Rolled back for another reason; the lease still lists the job.
    Undone(Failure),
    /// Unknown: the database could not be queried after the commit.
    Unknown(Failure),
}
