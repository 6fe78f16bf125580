//! The transaction of a transactional job: begun before its handler, lent to it, and committed after it.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
};

use sqlx::PgConnection;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::transaction::{Begun, JobTransaction, NOT_COMPLETED};
use crate::{define::Failure, error::Error};

/// That of an attempt; it is begun if its type is transactional.
#[derive(Default)]
pub(crate) struct WholeTransaction(OnceLock<Box<Mutex<Option<JobTransaction>>>>);

impl WholeTransaction {
    pub(super) fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// Waits for a connection of the pool as long as that takes: no handler has failed yet.
    pub(super) async fn begin(&self, begun: &Arc<Begun>) -> Result<(), Error> {
        let transaction = loop {
            match JobTransaction::begin(begun).await {
                Err(Error::Database(sqlx::Error::PoolTimedOut)) => {
                    let (job, connections) = begun.waits_for();
                    tracing::warn!(%job, connections, "a transactional job waits for a connection of the pool: let it have one for each slot");
                }
                transaction => break transaction?,
            }
        };
        // An attempt begins one.
        let _ = self.0.set(Box::new(Mutex::new(Some(transaction))));
        Ok(())
    }

    /// Completes the job with what its handler returned, as JSON text.
    pub(super) async fn commit(&self, output: Option<&str>) -> Result<(), Failure> {
        // Free, for its handler has ended, unless it has leaked a guard: then it is rolled back.
        match self.0.get().and_then(|transaction| transaction.try_lock().ok()?.take()) {
            Some(transaction) => transaction.complete_job(output.map(str::to_owned)).await,
            None => Err(NOT_COMPLETED.into()),
        }
    }

    pub(super) async fn lock(&self) -> Option<TransactionGuard<'_>> {
        let held = MutexGuard::try_map(self.0.get()?.lock().await, Option::as_mut).ok()?;
        Some(TransactionGuard { held })
    }
}

/// The transaction that completes a job, while its handler writes on it; from [`Context::transaction`](crate::Context::transaction). It is a connection:
/// `&mut *guard` for sqlx, `&mut guard` for an enqueue.
pub struct TransactionGuard<'c> {
    held: MappedMutexGuard<'c, JobTransaction>,
}

impl Deref for TransactionGuard<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.held
    }
}

impl DerefMut for TransactionGuard<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.held
    }
}

impl fmt::Debug for TransactionGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransactionGuard")
    }
}
