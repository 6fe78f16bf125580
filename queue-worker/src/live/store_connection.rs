//! Connections of the worker that do not belong to the user's pool. Claims, settles and heartbeats therefore never wait for the pool,
//! which handlers may exhaust.
//!
//! Each loop owns a [`StoreConnection`]. Its database connection is dedicated to the loop, or borrowed from a shared set for one
//! statement. After a failure or a redirection of the pool, the next use reconnects. This module does not retry statements.

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

/// Factory that opens dedicated connections of the worker, or borrows connections from a shared set.
#[derive(Clone)]
pub(crate) struct ConnectionFactory {
    pool: PgPool,
    shared: Option<Borrower>,
}

/// Connection that is opened on the first use, and again on the first use after a failure.
pub(crate) struct StoreConnection {
    factory: ConnectionFactory,
    purpose: &'static str,
    /// Session settings that the connection has in addition to the worker's common settings.
    settings: Settings,
    connection: Option<PgConnection>,
    /// Loan terms of a borrowed connection, which is returned after each statement. `None` while no connection is borrowed.
    terms: Option<LoanTerms>,
    /// Whether the last connection came from the shared set and has not failed.
    shares: bool,
    /// Failure count of the shared set at the time of the last loan.
    deaths: u64,
    /// Connection options of the open connection.
    to: Arc<PgConnectOptions>,
    /// Time at which the connection was opened.
    since: Instant,
}

/// Timeout for a statement. After the timeout, the connection counts as dead.
const PATIENCE: Duration = Duration::from_secs(15);

/// Substring of the error messages for a database that has moved to another server.
const MOVED: &str = "has moved to another ";

/// Notifies waiting tasks when a statement fails because its store has moved.
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
    /// Creates a factory that borrows from a set of shared connections.
    pub(crate) fn shared(pool: &PgPool, by: Borrower) -> Self {
        Self { pool: pool.clone(), shared: Some(by) }
    }

    /// Creates a factory that shares up to `most` connections among all loops of a worker.
    pub(crate) fn of_one_worker(pool: &PgPool, most: usize) -> Self {
        Self::shared(pool, ConnectionBroker::of_one_worker(most))
    }

    /// Returns the pool whose options the factory's connections use.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }
}

impl StoreConnection {
    /// Creates a connection to the database of the factory's pool. The connection does not belong to the pool. It is opened on the first
    /// use, to the host that the pool uses at that time.
    pub(crate) fn new(factory: impl Into<ConnectionFactory>, purpose: &'static str) -> Self {
        let factory = factory.into();
        let (to, since, settings) = (factory.pool.connect_options(), Instant::now(), Vec::new());
        Self { factory, purpose, settings, connection: None, terms: None, shares: false, deaths: 0, to, since }
    }

    /// Returns an unopened connection with the same settings and purpose.
    pub(crate) fn another(&self) -> Self {
        Self { settings: self.settings.clone(), ..Self::new(&self.factory, self.purpose) }
    }

    /// Returns an unopened connection with the same settings and another purpose.
    pub(crate) fn another_for(&self, purpose: &'static str) -> Self {
        Self { purpose, ..self.another() }
    }

    pub(crate) fn call(&mut self, purpose: &'static str) {
        self.purpose = purpose;
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.settings.push((name, value));
        self
    }

    /// Makes commits return without waiting for the WAL flush. Suitable only for changes that may be lost, such as claims and promotions.
    /// If such a change is lost, the jobs keep their previous state.
    pub(crate) fn relaxed(self) -> Self {
        self.with("synchronous_commit", "off")
    }

    /// Sets a lock timeout of two seconds. The timeout exceeds the server's `deadlock_timeout` (default: 1 s), so that the server reports
    /// a deadlock before the statement times out.
    pub(crate) fn impatient(self) -> Self {
        self.with("lock_timeout", "2s")
    }

    /// Sets a lock timeout of a quarter of a second. Suitable for retried statements that many jobs wait for. In a deadlock, these
    /// statements time out before the server detects the deadlock.
    pub(crate) fn prompt(self) -> Self {
        self.with("lock_timeout", "250ms")
    }

    /// Sets a statement timeout of ten seconds. The server then cancels a statement before the connection counts as dead. Otherwise, a
    /// statement on a dropped connection would keep running and hold its locks.
    pub(crate) fn brief(self) -> Self {
        self.with("statement_timeout", "10s")
    }

    /// Sets a statement timeout of 2.5 seconds, for statements that a client is waiting for.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) fn hasty(self) -> Self {
        self.with("statement_timeout", "2500ms")
    }

    /// Returns whether no connection has been opened or borrowed since the last failure.
    pub(crate) fn is_new(&self) -> bool {
        self.connection.is_none() && !self.shares
    }

    /// Returns the open connection. If no connection is open, opens or borrows a connection.
    pub(crate) async fn get(&mut self) -> sqlx::Result<&mut PgConnection> {
        Ok(self.get_since().await?.0)
    }

    /// Returns the open connection, its opening time, and whether the connection is new. A new connection plans its statements again.
    ///
    /// Information obtained before the opening time may be about another server. If the database has moved, or a shared connection has
    /// failed since the last loan, the next call returns an error. Callers discard their information about the server after any error.
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
            return Err(sqlx::Error::Io(std::io::Error::other("the last connection was lost; the next one may reach another server")));
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
                // The future is boxed, because it is large with TLS and every loop holds such a future.
                let made = bounded(Box::pin(connect_along(&self.factory.pool, (self.purpose, None), &self.settings))).await;
                let (to, connection) = made?;
                (self.to, self.since, is_fresh) = (to, Instant::now(), true);
                connection
            }
        };
        Ok((self.connection.insert(connection), self.since, is_fresh))
    }

    /// Returns whether the pool has been redirected to a different host. A changed password does not count as a redirection.
    fn is_elsewhere(&mut self) -> bool {
        let now = self.factory.pool.connect_options();
        if Arc::ptr_eq(&now, &self.to) {
            return false;
        }
        let is_elsewhere = !is_same_place(&now, &self.to);
        self.to = now;
        is_elsewhere
    }

    /// Checks whether the worker's settings are in effect, and logs a warning otherwise. Returns an error if a pooler mixes up prepared
    /// statements. Uses the simple query protocol, which every pooler accepts.
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

    /// Handles the result of a statement. Drops the connection after a connection error, and after a server error that reports a shutdown
    /// or a read-only server. Otherwise, returns a borrowed connection to the shared set.
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

    /// Returns a borrowed connection to the shared set. The next statement borrows a connection again.
    fn give_back(&mut self) {
        let Some(shared) = &self.factory.shared else { return };
        if let Some((connection, terms)) = self.connection.take().zip(self.terms.take()) {
            let lent = BorrowedConnection { connection, to: Arc::clone(&self.to), since: self.since, terms, is_fresh: false };
            shared.give_back(lent, self.purpose, &self.settings);
        }
    }

    pub(crate) async fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = timeout(Duration::from_secs(1), connection.close()).await;
        }
    }
}

/// Returns whether the error means that the database, or a store in a Citus cluster, has moved to another server. The statement can be
/// retried immediately, because the other server is available.
pub(crate) fn has_moved(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.message().contains(MOVED),
        sqlx::Error::Io(error) => error.to_string().contains(MOVED),
        _ => false,
    }
}

/// Waits until a statement of any worker fails because its store has moved.
pub(super) async fn wait_for_move() {
    MOVES.notified().await;
}

/// Returns the delay before the retry of a statement that failed with `error`.
pub(crate) fn pause_after(error: &sqlx::Error) -> Duration {
    Duration::from_millis(if has_moved(error) { 50 } else { 500 })
}

/// Returns a random duration between `pause` and twice `pause`, so that workers do not retry simultaneously after an outage.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + fastrand::f64())
}

/// Limits a statement to the timeout [`PATIENCE`]. A timeout is returned as a connection error, so [`StoreConnection::note`] then drops the
/// connection.
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
