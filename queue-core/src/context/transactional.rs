//! Transaction of a transactional job. The transaction begins before the handler runs, is available to the handler, and is committed
//! after the handler returns.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
};

use sqlx::PgConnection;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::transaction::{JobTransaction, NOT_COMPLETED, TransactionTracker};
use crate::{define::Failure, error::Error};

/// Transaction of one attempt. Empty unless the job type is transactional.
#[derive(Default)]
pub(crate) struct AttemptTransaction(OnceLock<Box<Mutex<Option<JobTransaction>>>>);

impl AttemptTransaction {
    pub(super) fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// Begins the transaction. Waits for a connection without a time limit, because the handler has not started yet.
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
        // An attempt begins its transaction once, so the cell is empty.
        let _ = self.0.set(Box::new(Mutex::new(Some(transaction))));
        Ok(())
    }

    /// Completes the job. `output` is the handler's output as JSON text.
    pub(super) async fn commit(&self, output: Option<&str>) -> Result<(), Failure> {
        // The handler has ended, so the lock is free unless the handler leaked a guard. With a leaked guard, the transaction is rolled
        // back.
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

/// Lock guard of the transaction that completes a job. Returned by [`Context::transaction`](crate::Context::transaction). Use the guard
/// as a connection: `&mut *guard` for sqlx, `&mut guard` for an enqueue.
///
/// ```
/// use queue_core::{Context, Handler, Job, JobResult, job};
///
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Receipt { account: i64 }
/// # #[job(transactional)] #[derive(serde::Serialize, serde::Deserialize)] struct Deposit { account: i64 }
/// impl Handler for Deposit {
///     async fn run(self, cx: &Context) -> JobResult {
///         let mut tx = cx.transaction().await;
///         sqlx::query("update account set balance = balance + 1 where id = $1").bind(self.account).execute(&mut *tx).await?;
///         Receipt { account: self.account }.enqueue(&mut tx).await?;
///         Ok(())
///     }
/// }
/// ```
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
