//! Transaction of a transactional job: begun before its handler runs, lent to the handler, and committed after it.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
};

use sqlx::PgConnection;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::transaction::{JobTransaction, NOT_COMPLETED, TransactionTracker};
use crate::{define::Failure, error::Error};

/// Transaction of one attempt; begun only for a transactional type.
#[derive(Default)]
pub(crate) struct AttemptTransaction(OnceLock<Box<Mutex<Option<JobTransaction>>>>);

impl AttemptTransaction {
    pub(super) fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// Begins the transaction. Waits for a connection of the pool without a limit, since the handler has not started.
    pub(super) async fn begin(&self, tracker: &Arc<TransactionTracker>) -> Result<(), Error> {
        let transaction = loop {
            match JobTransaction::begin(tracker).await {
                Err(Error::Database(sqlx::Error::PoolTimedOut)) => {
                    let (job, connections) = tracker.job_and_pool_size();
                    tracing::warn!(%job, connections, "waiting for a pool connection to begin a transactional job; size the pool for one connection per slot");
                }
                transaction => break transaction?,
            }
        };
        // Begun once per attempt.
        let _ = self.0.set(Box::new(Mutex::new(Some(transaction))));
        Ok(())
    }

    /// Completes the job with its handler's output, as JSON text.
    pub(super) async fn commit(&self, output: Option<&str>) -> Result<(), Failure> {
        // Unlocked, since the handler has ended. If the handler leaked a guard, the transaction is rolled back.
        match self.0.get().and_then(|transaction| transaction.try_lock().ok()?.take()) {
            Some(transaction) => transaction.complete_job(output.map(str::to_owned)).await,
            None => Err(NOT_COMPLETED.into()),
        }
    }

    pub(super) async fn lock(&self) -> Option<TransactionGuard<'_>> {
        let transaction = MutexGuard::try_map(self.0.get()?.lock().await, Option::as_mut).ok()?;
        Some(TransactionGuard { transaction })
    }
}

/// Lock on the transaction that completes a job; from [`Context::transaction`](crate::Context::transaction). Use it as a connection: `&mut
/// *guard` for sqlx, `&mut guard` for an enqueue.
pub struct TransactionGuard<'c> {
    transaction: MappedMutexGuard<'c, JobTransaction>,
}

impl Deref for TransactionGuard<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for TransactionGuard<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

impl fmt::Debug for TransactionGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionGuard")
    }
}
