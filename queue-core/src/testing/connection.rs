//! Connection of a drain. Handlers can use the connection for their transactions.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};

use super::Error;
use crate::{context::LentTransaction, define::JobId};

/// Connection with the test's transaction. While the connection is lent to handlers, `on` contains a connection from the pool instead.
pub(super) struct DrainConnection<'t> {
    on: &'t mut PgConnection,
    lent: Option<LentTransaction>,
}

/// Maximum time to wait until a finished handler has released the transaction.
const RELEASE_WAIT: Duration = Duration::from_secs(5);

impl<'t> DrainConnection<'t> {
    pub(super) fn keep(on: &'t mut PgConnection) -> Self {
        Self { on, lent: None }
    }

    /// Swaps the test's connection with an owned connection from the pool. A handler's context has no lifetime parameter, so it cannot
    /// borrow the test's connection.
    pub(super) async fn lend(on: &'t mut PgConnection, pool: &PgPool) -> Result<Self, Error> {
        let mut spare = pool.begin().await?;
        std::mem::swap(on, &mut *spare);
        Ok(Self { on, lent: Some(Arc::new(Mutex::new(spare))) })
    }

    pub(super) fn lent(&self) -> Option<LentTransaction> {
        self.lent.clone()
    }

    /// Locks the connection. Fails with [`Error::Kept`] if the handler of the job `after` has not released the connection within
    /// [`RELEASE_WAIT`].
    pub(super) async fn lock(&mut self, after: Option<JobId>) -> Result<DrainGuard<'_>, Error> {
        let Some(lent) = &self.lent else { return Ok(DrainGuard::Own(&mut *self.on)) };
        let held = timeout(RELEASE_WAIT, Arc::clone(lent).lock_owned()).await;
        held.map(DrainGuard::Lent).map_err(|_| Error::Kept { job: after.unwrap_or(JobId(0)) })
    }
}

/// Swaps the test's connection back, even if the drain is dropped midway. The handler is always dropped before this value, so only a task
/// that the handler spawned can still hold the lock. If a task holds the lock, the connections stay swapped.
impl Drop for DrainConnection<'_> {
    fn drop(&mut self) {
        if let Some(mut held) = self.lent.as_ref().and_then(|lent| lent.try_lock().ok()) {
            std::mem::swap(self.on, &mut **held);
        }
    }
}

pub(super) enum DrainGuard<'g> {
    Own(&'g mut PgConnection),
    Lent(OwnedMutexGuard<Transaction<'static, Postgres>>),
}

impl Deref for DrainGuard<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Lent(tx) => tx,
        }
    }
}

impl DerefMut for DrainGuard<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Lent(tx) => tx,
        }
    }
}
