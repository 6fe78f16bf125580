//! Connections for operations that need a transaction, such as bulk enqueues and migrations. Unless the caller has an open transaction,
//! [`Session::begin`] begins one.
//!
//! If the future of `sqlx`'s `begin` is dropped midway, the connection stays in a transaction. The next borrower of the pooled connection
//! would then write into that transaction. A dropped [`Session`] ends its transaction without awaiting anything. This module does not
//! depend on jobs.

use std::{
    future::Future as _,
    ops::{Deref, DerefMut},
    pin::pin,
    task::{Context, Waker},
};

use sqlx::{Connection as _, PgConnection, PgPool, Postgres, Row as _, pool::PoolConnection};
use tokio::sync::MappedMutexGuard;

use crate::define::Durability;

/// Pool, or a single connection, which may be in a transaction.
#[doc(hidden)]
#[derive(Debug)]
pub enum Connection<'c> {
    Pool(&'c PgPool),
    One(&'c mut PgConnection),
    Locked(MappedMutexGuard<'c, PgConnection>),
}

pub(crate) struct Session<'c> {
    connection: SessionConnection<'c>,
    /// Whether the session's own transaction is open. Also true if the state of the transaction is unknown, for example after a failed
    /// rollback.
    open: bool,
}

/// Connection borrowed from a pool, or the caller's connection.
pub(crate) enum SessionConnection<'c> {
    Own(PoolConnection<Postgres>),
    Lent(&'c mut PgConnection),
    Locked(MappedMutexGuard<'c, PgConnection>),
}

impl<'c> Connection<'c> {
    /// Returns the single connection, or a connection acquired from the pool. A connection from a pool goes back to the pool when dropped.
    pub(crate) async fn into_session(self) -> sqlx::Result<SessionConnection<'c>> {
        Ok(match self {
            Self::Pool(pool) => SessionConnection::Own(pool.acquire().await?),
            Self::One(connection) => SessionConnection::Lent(connection),
            Self::Locked(connection) => SessionConnection::Locked(connection),
        })
    }

    /// Borrows the single connection, or acquires a connection from the pool. An acquired connection goes back to the pool when dropped.
    pub(crate) async fn acquire(&mut self) -> sqlx::Result<SessionConnection<'_>> {
        Ok(match self {
            Self::Pool(pool) => SessionConnection::Own(pool.acquire().await?),
            Self::One(connection) => SessionConnection::Lent(connection),
            Self::Locked(connection) => SessionConnection::Lent(connection),
        })
    }
}

impl Deref for SessionConnection<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Lent(connection) => connection,
            Self::Locked(connection) => connection,
        }
    }
}

impl DerefMut for SessionConnection<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Lent(connection) => connection,
            Self::Locked(connection) => connection,
        }
    }
}

impl<'c> Session<'c> {
    /// Begins a transaction with the given durability, unless the caller has an open transaction. The caller's transaction keeps its
    /// durability.
    pub(crate) async fn begin(on: Connection<'c>, durability: Durability) -> sqlx::Result<Self> {
        let begin = match durability {
            Durability::Full => "begin",
            Durability::Relaxed => "begin; set local synchronous_commit = off",
        };
        Self::begin_statement(on, begin).await
    }

    async fn begin_statement(on: Connection<'c>, begin: &'static str) -> sqlx::Result<Self> {
        let mut connection = on.into_session().await?;
        let open = matches!(connection, SessionConnection::Own(_)) || !in_transaction(&mut connection).await?;
        let mut session = Self { connection, open };
        session.execute_own(begin).await?;
        Ok(session)
    }

    /// Begins a read-only transaction for unnamed prepared statements. A pooler keeps a transaction on one server session, so each
    /// statement is parsed and executed on the same session. The transaction must be [ended](Self::end).
    pub(crate) async fn begin_read_only(on: Connection<'c>) -> sqlx::Result<Self> {
        Self::begin_statement(on, "begin isolation level read committed, read only").await
    }

    /// Begins a transaction on a pooled connection, with a statement timeout of 60 s and a lock timeout of 10 s. On a caller's
    /// connection, no transaction is begun, and the caller's timeouts apply.
    pub(crate) async fn begin_bounded(on: Connection<'c>) -> sqlx::Result<Self> {
        const BOUNDED: &str = "begin isolation level read committed; set local statement_timeout = '60s'; set local lock_timeout = '10s'";
        let open = matches!(on, Connection::Pool(_));
        let mut session = Self { connection: on.into_session().await?, open };
        session.execute_own(BOUNDED).await?;
        Ok(session)
    }

    /// Begins a transaction like [`Session::begin`], with full durability and on a single connection.
    pub(crate) async fn on(connection: &'c mut PgConnection) -> sqlx::Result<Self> {
        Self::begin(Connection::One(connection), Durability::Full).await
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Returns whether the connection is borrowed from a pool. Otherwise, the connection belongs to the caller.
    pub(crate) fn is_pooled(&self) -> bool {
        matches!(self.connection, SessionConnection::Own(_))
    }

    /// Commits the session's own transaction.
    pub(crate) async fn commit(mut self) -> sqlx::Result<()> {
        self.execute_own("commit").await?;
        self.open = false;
        Ok(())
    }

    /// Rolls back the session's own transaction. If the rollback fails, a pooled connection is closed instead of being returned to the
    /// pool.
    pub(crate) async fn roll_back(mut self) {
        self.open = self.execute_own("rollback").await.is_err();
    }

    /// Commits the session's own transaction if `found` is `Ok`, otherwise rolls it back. Returns `found` or the error of the commit.
    pub(crate) async fn end<T>(self, found: sqlx::Result<T>) -> sqlx::Result<T> {
        match found {
            Ok(_) => self.commit().await?,
            Err(_) => self.roll_back().await,
        }
        found
    }

    async fn execute_own(&mut self, statement: &'static str) -> sqlx::Result<()> {
        if self.open {
            sqlx::raw_sql(statement).execute(self.connection()).await?;
        }
        Ok(())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        match &mut self.connection {
            SessionConnection::Own(connection) => connection.close_on_drop(),
            // Polling the future once queues the rollback before any statement that the caller sends next.
            lent => {
                let _ = pin!(lent.begin_with("rollback")).poll(&mut Context::from_waker(Waker::noop()));
            }
        }
    }
}

/// Returns whether a transaction is open, including a transaction begun with plain SQL, which `sqlx` does not track. Outside a
/// transaction, the start time of a statement equals `now()`.
pub(crate) async fn in_transaction(connection: &mut PgConnection) -> sqlx::Result<bool> {
    const BEGAN_EARLIER: &str = "select pg_catalog.now() operator(pg_catalog.<>) pg_catalog.statement_timestamp()";
    if connection.is_in_transaction() {
        return Ok(true);
    }
    sqlx::raw_sql(BEGAN_EARLIER).fetch_one(connection).await?.try_get(0)
}
