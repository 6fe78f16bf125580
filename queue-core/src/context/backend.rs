//! What an attempt asks of outside: a transaction, its commit, the last checkpoint. A worker answers from the database, a test for it.

use std::{fmt, sync::Arc, time::Instant};

use async_trait::async_trait;
use sqlx::{Postgres, Transaction};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use crate::{
    define::{Ending, Failure, JobId, OrderingKey},
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

/// What the verdict of an attempt is written under.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    pub token: Uuid,
    pub id: JobId,
    pub lane: i64,
    pub attempt: i16,
    pub crashes: i16,
    /// Whether a completed job leaves a record.
    pub keep: bool,
    pub key: Option<OrderingKey>,
    pub since: Instant,
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
