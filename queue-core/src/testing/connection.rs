//! The connection that a drain works on, and how handlers come to have it.

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

/// The test's transaction: where it was, or with handlers, while a connection of the pool stands where it was.
pub(super) struct DrainConnection<'t> {
    on: &'t mut PgConnection,
    lent: Option<LentTransaction>,
}

/// So long a handler that has ended may hold on to the transaction.
const PATIENCE: Duration = Duration::from_secs(5);

impl<'t> DrainConnection<'t> {
    pub(super) fn keep(on: &'t mut PgConnection) -> Self {
        Self { on, lent: None }
    }

    /// A context has no lifetime, so it cannot borrow the connection: this one changes places with another, which is owned.
    pub(super) async fn lend(on: &'t mut PgConnection, pool: &PgPool) -> Result<Self, Error> {
        let mut spare = pool.begin().await?;
        std::mem::swap(on, &mut *spare);
        Ok(Self { on, lent: Some(Arc::new(Mutex::new(spare))) })
    }

    pub(super) fn lent(&self) -> Option<LentTransaction> {
        self.lent.clone()
    }

    /// The connection, once the handler of `after` has let go of it.
    pub(super) async fn lock(&mut self, after: Option<JobId>) -> Result<DrainGuard<'_>, Error> {
        let Some(lent) = &self.lent else { return Ok(DrainGuard::Own(&mut *self.on)) };
        let held = timeout(PATIENCE, Arc::clone(lent).lock_owned()).await;
        held.map(DrainGuard::Lent).map_err(|_| Error::Kept { job: after.unwrap_or(JobId(0)) })
    }
}

/// Also when the drain is dropped half-way; its handler has gone before.
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
