//! The connection a bulk enqueue or a migration works on, and a transaction of its own where the caller has none.
//!
//! `sqlx`'s `begin` leaves its connection in a transaction when its future is dropped half-way: the next borrower of the pool would
//! write into it. Here a drop at any point ends the transaction, without awaiting anything. It knows nothing of jobs.

use std::{
    future::Future as _,
    ops::{Deref, DerefMut},
    pin::pin,
    task::{Context, Waker},
};

use sqlx::{Connection as _, PgConnection, PgPool, Postgres, Row as _, pool::PoolConnection};

use crate::define::Durability;

/// A pool, or one connection of whatever origin.
#[doc(hidden)]
#[derive(Debug)]
pub enum Connection<'c> {
    Pool(&'c PgPool),
    One(&'c mut PgConnection),
}

pub(crate) struct Session<'c> {
    connection: SessionConnection<'c>,
    /// A transaction of ours is open, or may be.
    open: bool,
}

/// A connection of a pool's, or the one that was given.
pub(crate) enum SessionConnection<'c> {
    Own(PoolConnection<Postgres>),
    Lent(&'c mut PgConnection),
}

impl Connection<'_> {
    /// A connection for some statements, a pool has it back when it is dropped.
    pub(crate) async fn acquire(&mut self) -> sqlx::Result<SessionConnection<'_>> {
        Ok(match self {
            Self::Pool(pool) => SessionConnection::Own(pool.acquire().await?),
            Self::One(connection) => SessionConnection::Lent(connection),
        })
    }
}

impl Deref for SessionConnection<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Lent(connection) => connection,
        }
    }
}

impl DerefMut for SessionConnection<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Lent(connection) => connection,
        }
    }
}

impl<'c> Session<'c> {
    /// A transaction that the caller began keeps its own durability.
    pub(crate) async fn begin(on: Connection<'c>, durability: Durability) -> sqlx::Result<Self> {
        let begin = match durability {
            Durability::Full => "begin",
            Durability::Relaxed => "begin; set local synchronous_commit = off",
        };
        Self::begin_by(on, begin).await
    }

    async fn begin_by(on: Connection<'c>, begin: &'static str) -> sqlx::Result<Self> {
        let mut session = match on {
            Connection::Pool(pool) => Self { connection: SessionConnection::Own(pool.acquire().await?), open: true },
            Connection::One(connection) => {
                let open = !in_transaction(connection).await?;
                Self { connection: SessionConnection::Lent(connection), open }
            }
        };
        session.say(begin).await?;
        Ok(session)
    }

    /// To read by statements that have no name: a pooler must not part them from what they are read with. To be [ended](Self::end).
    pub(crate) async fn reading(on: Connection<'c>) -> sqlx::Result<Self> {
        Self::begin_by(on, "begin isolation level read committed, read only").await
    }

    /// Of a pool, a transaction that neither takes long nor waits long; on a connection whatever there is, in its time.
    pub(crate) async fn bounded(on: &'c mut Connection<'_>) -> sqlx::Result<Self> {
        const BOUNDED: &str = "begin isolation level read committed; set local statement_timeout = '60s'; set local lock_timeout = '10s'";
        let open = matches!(on, Connection::Pool(_));
        let mut session = Self { connection: on.acquire().await?, open };
        session.say(BOUNDED).await?;
        Ok(session)
    }

    /// As [`Session::begin`], on a connection.
    pub(crate) async fn on(connection: &'c mut PgConnection) -> sqlx::Result<Self> {
        Self::begin(Connection::One(connection), Durability::Full).await
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Whether nobody is harmed when the connection is lost.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.connection, SessionConnection::Own(_))
    }

    /// Commits a transaction of ours.
    pub(crate) async fn commit(mut self) -> sqlx::Result<()> {
        self.say("commit").await?;
        self.open = false;
        Ok(())
    }

    /// Rolls a transaction of ours back. When that fails, the connection is broken, and dropped as such.
    pub(crate) async fn roll_back(mut self) {
        self.open = self.say("rollback").await.is_err();
    }

    /// Ends a transaction of ours in which this came out.
    pub(crate) async fn end<T>(self, found: sqlx::Result<T>) -> sqlx::Result<T> {
        match found {
            Ok(_) => self.commit().await?,
            Err(_) => self.roll_back().await,
        }
        found
    }

    async fn say(&mut self, statement: &'static str) -> sqlx::Result<()> {
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
            // The first poll puts the statement in front of whatever the caller sends next; that is all it is wanted for.
            SessionConnection::Lent(connection) => {
                let _ = pin!(connection.begin_with("rollback")).poll(&mut Context::from_waker(Waker::noop()));
            }
        }
    }
}

/// Also of one that the caller began in SQL, which `sqlx` does not know of: outside a transaction a statement begins at its own time.
pub(crate) async fn in_transaction(connection: &mut PgConnection) -> sqlx::Result<bool> {
    const BEGAN_EARLIER: &str = "select pg_catalog.now() operator(pg_catalog.<>) pg_catalog.statement_timestamp()";
    if connection.is_in_transaction() {
        return Ok(true);
    }
    sqlx::raw_sql(BEGAN_EARLIER).fetch_one(connection).await?.try_get(0)
}
