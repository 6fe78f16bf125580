//! What an attempt asks of outside: a transaction, its commit, the last checkpoint. A worker answers from the database, a test for it.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use sqlx::{Postgres, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};
use uuid::Uuid;

use super::{ChildEntry, ChildLook, ChunkEntry, CloseEntry, Fence, GatherLook, Heard, JournaledStep, SignalEntry, StepEntry, Written};
use crate::{
    define::{Ending, Failure, JobId},
    error::Error,
};

/// What an attempt asks of outside. A worker's is the database; a test's stands in for it.
#[doc(hidden)]
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// Begins a transaction that may end this job.
    async fn begin(&self, job: JobId) -> Result<OwnTransaction, Error>;

    /// Writes the ending as the last statement of the transaction, commits, and finds out what came of it.
    async fn commit(self: Arc<Self>, tx: OwnTransaction, fence: Fence, ending: Ending) -> CommitResult;

    /// The job's last checkpoint, as JSON text.
    async fn checkpoint(&self, job: JobId) -> Result<Option<String>, Error>;

    /// What earlier attempts of the job have journaled.
    async fn steps(&self, _: JobId) -> Result<Vec<JournaledStep>, Error> {
        Ok(Vec::new())
    }

    /// Journals a step; committed when this returns.
    async fn journal(&self, _: StepEntry) -> Written {
        Written::Refused
    }

    /// Journals a step as the last statement of the transaction, commits, and finds out what came of it.
    async fn commit_step(self: Arc<Self>, _: OwnTransaction, _: StepEntry) -> CommitResult {
        CommitResult::Lost
    }

    /// Journals the next signal of a name, or the end of the wait for it; committed when this returns.
    async fn receive(&self, _: SignalEntry) -> Heard {
        Heard::Refused
    }

    /// Enqueues a child and journals that; committed when this returns. None if the lease does not have the job any more.
    async fn spawn(&self, _: ChildEntry) -> sqlx::Result<Option<JobId>> {
        Err(sqlx::Error::Protocol("no children are spawned here".to_owned()))
    }

    /// What the child that this step has spawned came to; none if there is none.
    async fn child(&self, _: JobId, _step: &str) -> sqlx::Result<Option<ChildLook>> {
        Ok(None)
    }

    /// What the map of this step has come to, with its chunks or without; none if there is none.
    async fn gather(&self, _: JobId, _step: &str, _chunks: bool) -> sqlx::Result<Option<GatherLook>> {
        Ok(None)
    }

    /// Begins a transaction that enqueues a chunk of a map; none if nothing is enqueued here.
    async fn begin_chunk(&self, _: JobId) -> Result<Option<OwnTransaction>, Error> {
        Err(Error::Database(sqlx::Error::Protocol("no jobs are mapped here".to_owned())))
    }

    /// Notes what the transaction has enqueued as the chunk, as its last statement, and commits. False if there is one already: then nothing is
    /// written, and none if the lease does not have the job any more.
    async fn add_chunk(&self, _: Option<OwnTransaction>, _: ChunkEntry) -> sqlx::Result<Option<bool>> {
        Ok(None)
    }

    /// Notes that all is spawned, and journals that; committed when this returns. False if the numbers differ, none if the lease does not have the job
    /// any more.
    async fn close_gather(&self, _: CloseEntry) -> sqlx::Result<Option<bool>> {
        Ok(None)
    }

    /// What the jobs of a chunk of a map came to, in their order.
    async fn parts(&self, _: JobId, _step: &str, _chunk: i32) -> sqlx::Result<Vec<ChildLook>> {
        Ok(Vec::new())
    }

    /// Keeps what an attempt that ends has logged. Waits for it only if it may, and then for a moment; it never fails. A test's keeps none.
    async fn keep_log(&self, _: LogEntry, _may_wait: bool) {}
}

/// A transaction that is the handler's until it ends.
#[doc(hidden)]
#[derive(Debug)]
pub enum OwnTransaction {
    /// On a connection of the worker's pool.
    Pooled(Transaction<'static, Postgres>),
    /// A test's.
    Lent(OwnedMutexGuard<Transaction<'static, Postgres>>),
}

/// A transaction that a test lends to attempts, one after the other.
#[doc(hidden)]
pub type Lent = Arc<Mutex<Transaction<'static, Postgres>>>;

/// What an attempt has logged.
#[doc(hidden)]
#[derive(Debug)]
pub struct LogEntry {
    /// Of the lease that has its job; none if it has ended its job by itself, or its transaction will.
    pub token: Option<Uuid>,
    pub id: JobId,
    pub attempt: i16,
    /// How many lines are left out.
    pub cut: u64,
    pub text: String,
}

/// What came of a commit.
#[doc(hidden)]
#[derive(Debug)]
pub enum CommitResult {
    /// It happened.
    Written,
    /// It did not: the lease does not have the job any more.
    Lost,
    /// It did not, for another reason; the lease still has the job.
    Undone(Failure),
    /// Nobody could be asked.
    Unknown(Failure),
}
