//! Tenants, and transactions that enqueue for a tenant. Once the tenant has moved to another store, no such transaction can begin in the
//! old store.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    time::Duration,
};

use sqlx::{PgConnection, Postgres, Transaction};
use tokio::time::{Instant, sleep};

use super::{home::Stores, roster::Member};
use crate::{
    connect::{IntoConnection, sealed::Sealed},
    error::Error,
    results::{OnConnection, Queue},
    schema::{Connection, Store},
};

/// Tenant with its last known store. The tenant may have moved to another store since.
///
/// ```no_run
/// # use queue_core::{Job, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # async fn example(stores: &queue_core::stores::Stores) -> Result<(), queue_core::Error> {
/// let tenant = stores.of("acme").await?;
/// println!("{} is in {}", tenant.key(), tenant.member().name());
/// let mut tx = tenant.begin().await?;
/// Email { to: "ada@example.org".into() }.enqueue(&mut tx).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tenant {
    stores: Stores,
    key: String,
    member: Member,
    epoch: i64,
}

/// Transaction in the database of a tenant's store. Jobs enqueued in the transaction go to that store, and have the tenant's key in their
/// metadata as `of_tenant`.
///
/// Until the transaction ends, it holds a lock on the tenant's assignment to the store, and a move of the tenant waits for the lock. The
/// transaction is rolled back when dropped.
///
/// ```no_run
/// # use queue_core::{Job, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # async fn example(stores: &queue_core::stores::Stores) -> Result<(), queue_core::Error> {
/// let mut tx = stores.of("acme").await?.begin().await?;
/// sqlx::query("insert into users (mail) values ('ada@example.org')").execute(&mut *tx).await?;
/// Email { to: "ada@example.org".into() }.enqueue(&mut tx).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub struct TenantTransaction {
    tx: Transaction<'static, Postgres>,
    store: Store,
    key: String,
}

/// Time after which [`Tenant::begin`] fails if neither store of a move accepts transactions for the tenant. A move usually takes the tenant
/// from one store to the other within milliseconds, or gives up after a second.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// First nonzero retry delay of [`Tenant::begin`], whose first retry is immediate. Each later delay is twice the previous one, up to
/// `MAX_RETRY_DELAY`.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(5);

const MAX_RETRY_DELAY: Duration = Duration::from_millis(100);

impl Tenant {
    pub(super) fn new(stores: Stores, key: &str, member: Member, epoch: i64) -> Self {
        Self { stores, key: key.to_owned(), member, epoch }
    }

    /// Returns the tenant's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the last known store of the tenant.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Begins a transaction in which jobs of the tenant can be enqueued. If the tenant has moved, the transaction begins in the new store.
    /// While a move waits for open transactions of the tenant, this function waits too, for up to a second at a time.
    ///
    /// # Errors
    /// Returns [`Error::Moved`] if a move prevents the transaction from beginning for ten seconds, and [`Error::Database`] if a query
    /// fails. Also returns the errors of [`Stores::of`].
    pub async fn begin(&self) -> Result<TenantTransaction, Error> {
        let (mut tenant, mut delay, deadline) = (self.clone(), Duration::ZERO, Instant::now() + BEGIN_TIMEOUT);
        loop {
            let mut tx = tenant.member.pool().begin().await?;
            if tenant.lock_place(&mut tx).await? {
                return Ok(TenantTransaction { tx, store: tenant.member.store(), key: tenant.key });
            }
            tx.rollback().await?;
            if Instant::now() > deadline {
                return Err(Error::Moved { key: self.key.clone() });
            }
            sleep(delay).await;
            delay = (delay * 2).clamp(FIRST_RETRY_DELAY, MAX_RETRY_DELAY);
            self.stores.places.forget(&self.key);
            tenant = self.stores.of(&self.key).await?;
        }
    }

    /// Prepares the caller's transaction to enqueue jobs of the tenant. The transaction must be in the database of the tenant's store. A
    /// move of the tenant waits until the transaction ends. Set `.store(tenant.member().store())` and `.meta("of_tenant", tenant.key())`
    /// on each enqueue.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails. Returns [`Error::Moved`] if the tenant has moved to another store, or is about to
    /// leave this one. After [`Error::Moved`], the transaction is unchanged. After a short delay, call [`Stores::of`] again, and begin a
    /// transaction in the store that it returns.
    pub async fn enter(&self, tx: &mut Transaction<'_, Postgres>) -> Result<(), Error> {
        if self.lock_place(tx).await? {
            return Ok(());
        }
        self.stores.places.forget(&self.key);
        Err(Error::Moved { key: self.key.clone() })
    }

    async fn lock_place(&self, connection: &mut PgConnection) -> sqlx::Result<bool> {
        let enter = sqlx::query(self.stores.schema.sql(include_str!("../../stores/enter.sql")));
        let found = enter.bind(self.member.store().schema()).bind(&self.key).bind(self.epoch).fetch_optional(connection).await?;
        Ok(found.is_some())
    }
}

impl TenantTransaction {
    /// Returns a handle to the tenant's store. The handle sends its queries in this transaction.
    pub fn queue(&mut self) -> Queue<OnConnection<'_>> {
        let store = self.store();
        Queue::on(self).store(store)
    }

    /// Returns the store into which the transaction enqueues.
    pub fn store(&self) -> Store {
        self.store
    }

    /// Returns the tenant's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the connection or the statement fails.
    pub async fn commit(self) -> Result<(), Error> {
        Ok(self.tx.commit().await?)
    }

    /// Rolls back the transaction.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the connection or the statement fails.
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
