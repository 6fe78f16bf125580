//! A tenant in its store, and a transaction that enqueues for it: only as long as it is there.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use sqlx::{PgConnection, Postgres, Transaction};

use super::{home::Stores, roster::Member};
use crate::{
    connect::{IntoConnection, sealed::Sealed},
    error::Error,
    schema::{Connection, Store},
};

/// A tenant, and the store that it is in as far as is known.
#[derive(Clone)]
pub struct Tenant {
    stores: Stores,
    key: String,
    member: Member,
    epoch: i64,
}

/// A transaction in the database of a tenant's store. What is enqueued in it is in that store, and has the tenant's key in its metadata, as `of_tenant`.
///
/// It holds on to the tenant's place until it ends: a move waits for it. Dropped, it is rolled back.
pub struct TenantTransaction {
    tx: Transaction<'static, Postgres>,
    store: Store,
    key: String,
}

/// A tenant that moves again and again is given up after so many tries.
const TRIES: u32 = 5;

impl Tenant {
    pub(super) fn new(stores: Stores, key: &str, member: Member, epoch: i64) -> Self {
        Self { stores, key: key.to_owned(), member, epoch }
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its store.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Begins a transaction in which jobs of this tenant can be enqueued. If the tenant has moved, where it is now.
    ///
    /// # Errors
    /// [`Error::Moved`] if it moves again and again; as of [`Stores::of`]; the database's.
    pub async fn begin(&self) -> Result<TenantTransaction, Error> {
        let mut tenant = self.clone();
        for _ in 0..TRIES {
            let mut tx = tenant.member.pool().begin().await?;
            if tenant.is_here(&mut tx).await? {
                return Ok(TenantTransaction { tx, store: tenant.member.store(), key: tenant.key });
            }
            tx.rollback().await?;
            self.stores.known.forget(&self.key);
            tenant = self.stores.of(&self.key).await?;
        }
        Err(Error::Moved { key: self.key.clone() })
    }

    /// Lets a transaction of yours, in the database of this tenant's store, enqueue for it: say `.store(tenant.member().store())` and
    /// `.meta("of_tenant", tenant.key())` with each enqueue. It holds on to the tenant's place until it ends.
    ///
    /// # Errors
    /// [`Error::Moved`] if the tenant is in another store by now: ask again, and begin there. The transaction is as it was. The database's.
    pub async fn enter(&self, tx: &mut Transaction<'_, Postgres>) -> Result<(), Error> {
        if self.is_here(tx).await? {
            return Ok(());
        }
        self.stores.known.forget(&self.key);
        Err(Error::Moved { key: self.key.clone() })
    }

    async fn is_here(&self, connection: &mut PgConnection) -> sqlx::Result<bool> {
        let enter = sqlx::query(self.stores.schema.sql(include_str!("../../stores/enter.sql")));
        let found = enter.bind(self.member.store().schema()).bind(&self.key).bind(self.epoch).fetch_optional(connection).await?;
        Ok(found.is_some())
    }
}

impl TenantTransaction {
    /// The store that it enqueues into.
    pub fn store(&self) -> Store {
        self.store
    }

    /// The tenant's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Commits what was written.
    ///
    /// # Errors
    /// The database's.
    pub async fn commit(self) -> Result<(), Error> {
        Ok(self.tx.commit().await?)
    }

    /// Takes back what was written.
    ///
    /// # Errors
    /// The database's.
    pub async fn rollback(self) -> Result<(), Error> {
        Ok(self.tx.rollback().await?)
    }
}

impl Sealed for &mut TenantTransaction {}

impl<'c> IntoConnection<'c> for &'c mut TenantTransaction {
    fn into_connection(self) -> Connection<'c> {
        Connection::One(self)
    }

    fn tenant(&self) -> Option<(Store, String)> {
        Some((self.store, self.key.clone()))
    }
}

impl Deref for TenantTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.tx
    }
}

impl DerefMut for TenantTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.tx
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({} in {})", self.key, self.member.name())
    }
}

impl fmt::Debug for TenantTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenantTransaction({} in {})", self.key, self.store.schema())
    }
}
