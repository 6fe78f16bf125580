//! The worker's own connections. Handlers may exhaust the pool, but claims, settles and heartbeats never wait for it.
//!
//! Each loop owns a [`StoreConnection`]: to a connection of its own, or to one of the shared connections for the duration of a statement. A failed link
//! reconnects at its next use, and so does one to a host that the pool no longer leads to. Nothing here retries.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::runner::mixes_up;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::{sync::Notify, time::timeout};

use super::{
    connection_broker::{BorrowedConnection, Borrower, ConnectionBroker, LoanTerms},
    dial::{POOLER, connect_along, has_settings, is_same_place},
    idle_connections::Settings,
};
use crate::error::Error;

/// Creates the worker's own connections, or borrows them from a shared set.
#[derive(Clone)]
pub(crate) struct ConnectionFactory {
    pool: PgPool,
    shared: Option<Borrower>,
}

/// A connection that is opened on first use, and again after a failure.
pub(crate) struct StoreConnection {
    factory: ConnectionFactory,
    purpose: &'static str,
    /// In addition to the settings of all our connections.
    settings: Settings,
    connection: Option<PgConnection>,
    /// Terms of a shared connection, which is returned after each statement.
    terms: Option<LoanTerms>,
    /// Whether the last shared connection worked.
    shares: bool,
    /// Number of shared connections found dead when it was borrowed.
    deaths: u64,
    /// Where the connection leads, and since when.
    to: Arc<PgConnectOptions>,
    since: Instant,
}

/// A statement that takes longer than this counts as a dead connection.
const PATIENCE: Duration = Duration::from_secs(15);

/// Part of error messages, here and from a store.
const MOVED: &str = "has moved to another ";

/// Notified whenever a statement finds that its store has moved.
static MOVES: Notify = Notify::const_new();

impl From<&PgPool> for ConnectionFactory {
    fn from(pool: &PgPool) -> Self {
        Self { pool: pool.clone(), shared: None }
    }
}

impl From<&Self> for ConnectionFactory {
    fn from(factory: &Self) -> Self {
        factory.clone()
    }
}

impl ConnectionFactory {
    /// Borrows from a set of connections.
    pub(crate) fn shared(pool: &PgPool, by: Borrower) -> Self {
        Self { pool: pool.clone(), shared: Some(by) }
    }

    /// Shares up to this many connections among all loops of a worker.
    pub(crate) fn of_one_worker(pool: &PgPool, most: usize) -> Self {
        Self::shared(pool, ConnectionBroker::of_one_worker(most))
    }

    /// Returns a pool that leads to the same database.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }
}

impl StoreConnection {
    /// Creates a link to the database of a pool, outside the pool. Follows the pool when it opens a connection.
    pub(crate) fn new(factory: impl Into<ConnectionFactory>, purpose: &'static str) -> Self {
        let factory = factory.into();
        let (to, since, settings) = (factory.pool.connect_options(), Instant::now(), Vec::new());
        Self { factory, purpose, settings, connection: None, terms: None, shares: false, deaths: 0, to, since }
    }

    /// Returns a new link with the same settings.
    pub(crate) fn another(&self) -> Self {
        Self { settings: self.settings.clone(), ..Self::new(&self.factory, self.purpose) }
    }

    /// Returns a new link with the same settings for this purpose.
    pub(crate) fn another_for(&self, purpose: &'static str) -> Self {
        Self { purpose, ..self.another() }
    }

    /// Changes the purpose.
    pub(crate) fn call(&mut self, purpose: &'static str) {
        self.purpose = purpose;
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.settings.push((name, value));
        self
    }

    /// Commits without waiting for the disk. Only for what may be lost: after a lost claim or promotion the jobs are still waiting.
    pub(crate) fn relaxed(self) -> Self {
        self.with("synchronous_commit", "off")
    }

    /// Sets a lock timeout of two seconds, which costs nothing without a lock. Not shorter: a server needs a second to detect a deadlock.
    pub(crate) fn impatient(self) -> Self {
        self.with("lock_timeout", "2s")
    }

    /// Sets a lock timeout of a quarter of a second. For statements that many jobs wait for and that are retried; one in a deadlock gives way, too.
    pub(crate) fn prompt(self) -> Self {
        self.with("lock_timeout", "250ms")
    }

    /// Lets the server cancel a statement before its connection counts as dead. A statement on a dropped connection keeps running and keeps its
    /// locks.
    pub(crate) fn brief(self) -> Self {
        self.with("statement_timeout", "10s")
    }

    /// As [`StoreConnection::brief`], for statements that a client waits for.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) fn hasty(self) -> Self {
        self.with("statement_timeout", "2500ms")
    }

    /// Whether it has no connection yet.
    pub(crate) fn is_new(&self) -> bool {
        self.connection.is_none() && !self.shares
    }

    /// Returns the connection, opening one if necessary.
    pub(crate) async fn get(&mut self) -> sqlx::Result<&mut PgConnection> {
        Ok(self.get_since().await?.0)
    }

    /// The same, with the time since when it is connected: what was learned before may be from another server. Therefore returns an error once after
    /// the database has moved, since callers forget what they know about a server after any error. Also returns whether the connection is new and
    /// plans its statements again.
    pub(crate) async fn get_since(&mut self) -> sqlx::Result<(&mut PgConnection, Instant, bool)> {
        let before = self.connection.take();
        if (before.is_some() || self.shares) && self.is_elsewhere() {
            (self.terms, self.shares) = (None, false);
            return Err(sqlx::Error::Io(std::io::Error::other("the database has moved to another host")));
        }
        if let (true, None, Some(shared)) = (self.shares, &before, &self.factory.shared)
            && shared.deaths() != self.deaths
        {
            self.shares = false;
            return Err(sqlx::Error::Io(std::io::Error::other("the last connection is gone, and the server may be another one by now")));
        }
        let mut is_fresh = false;
        let connection = match (before, &self.factory.shared) {
            (Some(connection), _) => connection,
            (None, Some(shared)) => {
                let deaths = shared.deaths();
                let lent = bounded(Box::pin(shared.lend(&self.factory.pool, self.purpose, &self.settings))).await?;
                (self.to, self.since, self.terms, self.shares) = (lent.to, lent.since, Some(lent.terms), true);
                (self.deaths, is_fresh) = (deaths, lent.is_fresh);
                lent.connection
            }
            (None, None) => {
                // Boxed because it is large with TLS, and every loop holds one of these futures.
                let made = bounded(Box::pin(connect_along(&self.factory.pool, (self.purpose, None), &self.settings))).await;
                let (to, connection) = made?;
                (self.to, self.since, is_fresh) = (to, Instant::now(), true);
                connection
            }
        };
        Ok((self.connection.insert(connection), self.since, is_fresh))
    }

    /// Whether the pool leads to another host now. A changed password does not count.
    fn is_elsewhere(&mut self) -> bool {
        let now = self.factory.pool.connect_options();
        if Arc::ptr_eq(&now, &self.to) {
            return false;
        }
        let is_elsewhere = !is_same_place(&now, &self.to);
        self.to = now;
        is_elsewhere
    }

    /// Warns if our settings are not in effect. A pooler that would break more than that is an error. Uses the simple protocol, which every pooler
    /// accepts.
    pub(crate) async fn check_settings(&mut self) -> Result<(), Error> {
        if bounded(has_settings(self.get().await?)).await? {
            return Ok(());
        }
        let plain = (*self.to).clone().extra_float_digits(None).application_name("queue-worker start").disable_statement_logging();
        if bounded(mixes_up(&plain)).await? {
            return Err(Error::Pooler);
        }
        tracing::warn!("{POOLER}");
        Ok(())
    }

    /// Inspects the result of a statement: after any error that the server did not send, the connection is dropped.
    pub(crate) fn note<T>(&mut self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        let usable = match &result {
            Ok(_) => true,
            Err(sqlx::Error::Database(db)) => {
                !db.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("08") || code == "25006")
            }
            Err(_) => false,
        };
        if result.as_ref().err().is_some_and(has_moved) {
            MOVES.notify_waiters();
        }
        if usable {
            self.give_back();
        } else {
            if let (Some(shared), Some(_)) = (&self.factory.shared, &self.terms) {
                shared.record_death(self.deaths);
            }
            (self.connection, self.terms, self.shares) = (None, None, false);
        }
        result
    }

    /// Returns a shared connection until the next statement.
    fn give_back(&mut self) {
        let Some(shared) = &self.factory.shared else { return };
        if let Some((connection, terms)) = self.connection.take().zip(self.terms.take()) {
            let lent = BorrowedConnection { connection, to: Arc::clone(&self.to), since: self.since, terms, is_fresh: false };
            shared.give_back(lent, self.purpose, &self.settings);
        }
    }

    /// Closes the connection.
    pub(crate) async fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = timeout(Duration::from_secs(1), connection.close()).await;
        }
    }
}

/// Whether the error means that the database, or a store of a cluster, has moved to another server, which is available immediately.
pub(crate) fn has_moved(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.message().contains(MOVED),
        sqlx::Error::Io(error) => error.to_string().contains(MOVED),
        _ => false,
    }
}

/// Waits until a statement of any worker finds that its store has moved.
pub(super) async fn wait_for_move() {
    MOVES.notified().await;
}

/// Returns how long to wait before retrying after this error.
pub(crate) fn pause_after(error: &sqlx::Error) -> Duration {
    Duration::from_millis(if has_moved(error) { 50 } else { 500 })
}

/// Returns a random duration between `pause` and twice that, so that workers do not retry in step after an outage.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + fastrand::f64())
}

/// Turns a statement that exceeds the time limit into a connection error, after which [`StoreConnection::note`] drops the connection.
pub(crate) async fn bounded<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    timeout(PATIENCE, statement).await.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_of_many_workers_are_spread_over_the_length_of_a_pause() {
        let pause = Duration::from_millis(500);
        let mut tenths = [0; 10];
        for _ in 0..1_000 {
            let jitter = jittered(pause).checked_sub(pause).unwrap();
            assert!(jitter < pause, "{jitter:?} beyond the pause");
            tenths[(jitter.as_millis() / 50) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (50..200).contains(count)), "{tenths:?}");
    }
}
