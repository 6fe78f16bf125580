//! Transactions of an attempt. The transaction of a transactional job begins before the handler runs, is available to the handler, and is
//! committed after the handler has succeeded. Handlers of other job types can begin transactions themselves.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
};

use sqlx::PgConnection;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::{
    Context,
    transaction::{JobTransaction, NOT_COMPLETED, TransactionTracker},
};
use crate::{define::Failure, error::Error};

/// Transaction of one attempt. Empty unless the job type is transactional.
#[derive(Default)]
pub(crate) struct AttemptTransaction(OnceLock<Box<Mutex<Option<JobTransaction>>>>);

impl AttemptTransaction {
    pub(super) fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// Begins the transaction. Waits for a connection without a time limit. The attempt's timeout does not apply yet, because the handler
    /// has not started.
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

    /// Completes the job and commits the transaction. `output` is the handler's output as JSON text.
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

impl Context {
    /// Begins a transaction on the worker's pool. The transaction commits together with the job's completion; see [`JobTransaction`].
    ///
    /// The handler completes the job with [`JobTransaction::complete`] and returns the result. A handler that returns `Ok` without
    /// completing the transaction fails the attempt. Errors and panics before the commit roll the transaction back, and the job is
    /// retried as usual. The isolation level is `read committed`. Do not end the transaction in SQL.
    ///
    /// The transaction occupies one connection of the pool until it ends. Do slow work before the transaction begins, and size the pool
    /// for the number of handlers with a transaction.
    ///
    /// Handlers of [`transactional`](crate::options::Options::transactional) types use [`Context::transaction`] instead.
    ///
    /// # Errors
    /// Returns [`Error::Transactional`] for a transactional type, [`Error::LeaseLost`] if the job has finished, and errors of the pool.
    pub async fn begin(&self) -> Result<JobTransaction, Error> {
        if self.transaction.has_begun() {
            return Err(Error::Transactional { job: self.id() });
        }
        JobTransaction::begin(self.transaction_tracker()).await
    }

    fn transaction_tracker(&self) -> &Arc<TransactionTracker> {
        let report = self.reporter().report();
        self.transactions.get_or_init(|| Arc::new(TransactionTracker::new(self.fence, Arc::clone(&self.shared), Arc::clone(report))))
    }

    pub(crate) async fn begin_transaction(&self) -> Result<(), Error> {
        self.transaction.begin(self.transaction_tracker()).await
    }

    pub(crate) async fn commit_transaction(&self, output: Option<&str>) -> Result<(), Failure> {
        self.transaction.commit(output).await
    }

    /// Locks the transaction of a job whose type has the option [`transactional`](crate::options::Options::transactional). Writes and
    /// enqueues in the transaction commit together with the job's completion.
    ///
    /// Only one guard exists at a time, so a second call waits until the first guard is dropped. Use the guard as a connection. Do not
    /// begin or end transactions in SQL. Begin nested transactions with the guard's `begin`. Types that are not transactional use
    /// [`Context::begin`].
    ///
    /// # Panics
    /// Panics if the type is not transactional.
    pub async fn transaction(&self) -> TransactionGuard<'_> {
        let guard = self.transaction.lock().await;
        guard.unwrap_or_else(|| panic!("this job has no transaction: its type needs `#[job(transactional)]`"))
    }

    pub(crate) fn transactions(&self) -> Option<&Arc<TransactionTracker>> {
        self.transactions.get()
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
