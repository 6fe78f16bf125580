//! The transaction of a transactional job, as its handler is lent it.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use sqlx::{PgConnection, Postgres, Transaction};
use tokio::sync::{Mutex, MutexGuard};

/// A transaction that the worker lends to a handler.
#[doc(hidden)]
pub type Lent = Arc<Mutex<Transaction<'static, Postgres>>>;

/// The transaction that completes a job, while its handler writes on it. It is a connection: `&mut *guard` for sqlx, `&mut guard` for an enqueue.
pub struct TransactionGuard<'c> {
    pub(super) held: MutexGuard<'c, Transaction<'static, Postgres>>,
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
