//! The worker's own connections. Handlers may exhaust the pool; claims, settles and heartbeats never wait for it.
//!
//! Each loop owns one [`Link`]: to a connection of its own, or to one of those that loops share, for the length of a statement. A link that failed is replaced at its next use, and so is one to a host that its pool does not lead to any more; nothing
//! here retries.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::runner::mixes_up;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::{sync::Notify, time::timeout};

use super::{
    dial::{POOLER, connect_along, has_settings, is_same_place},
    exchange::{Borrower, Exchange, Lent, Terms},
    shelf::Settings,
};
use crate::error::Error;

/// Where a worker's own connections come from: each loop makes its own, unless there are some to share.
#[derive(Clone)]
pub(crate) struct Wires {
    pool: PgPool,
    shared: Option<Borrower>,
}

/// A connection that is made when first needed, and made anew after it failed.
pub(crate) struct Link {
    wires: Wires,
    purpose: &'static str,
    /// Beside those of all our connections.
    settings: Settings,
    connection: Option<PgConnection>,
    /// What it is lent on, if it is shared: then it is given back after each statement.
    terms: Option<Terms>,
    /// It had a shared one, and that did not fail.
    shares: bool,
    /// How many of those that are shared had been found dead by then.
    deaths: u64,
    /// To where that was made, and when.
    to: Arc<PgConnectOptions>,
    since: Instant,
}

/// How long one statement of ours may take before its connection counts as dead.
const PATIENCE: Duration = Duration::from_secs(15);

/// As it is told of, here and by a store.
const MOVED: &str = "has moved to another ";

/// Told whenever a statement finds that a store has moved.
static MOVES: Notify = Notify::const_new();

impl From<&PgPool> for Wires {
    fn from(pool: &PgPool) -> Self {
        Self { pool: pool.clone(), shared: None }
    }
}

impl From<&Self> for Wires {
    fn from(wires: &Self) -> Self {
        wires.clone()
    }
}

impl Wires {
    /// Shares connections with others.
    pub(crate) fn shared(pool: &PgPool, by: Borrower) -> Self {
        Self { pool: pool.clone(), shared: Some(by) }
    }

    /// Shares so many with all loops of one worker.
    pub(crate) fn of_one_worker(pool: &PgPool, most: usize) -> Self {
        Self::shared(pool, Exchange::of_one_worker(most))
    }

    /// Leads to their database.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }
}

impl Link {
    /// To the database of a pool, outside it: wherever that leads when a connection is made.
    pub(crate) fn new(wires: impl Into<Wires>, purpose: &'static str) -> Self {
        let wires = wires.into();
        let (to, since, settings) = (wires.pool.connect_options(), Instant::now(), Vec::new());
        Self { wires, purpose, settings, connection: None, terms: None, shares: false, deaths: 0, to, since }
    }

    /// Another of the same kind.
    pub(crate) fn another(&self) -> Self {
        Self { settings: self.settings.clone(), ..Self::new(&self.wires, self.purpose) }
    }

    /// Another one, for this.
    pub(crate) fn another_for(&self, purpose: &'static str) -> Self {
        Self { purpose, ..self.another() }
    }

    /// For this from now on.
    pub(crate) fn call(&mut self, purpose: &'static str) {
        self.purpose = purpose;
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.settings.push((name, value));
        self
    }

    /// Commits without waiting for the disk. Only for what may be lost: claims and promotions, whose jobs are then still waiting.
    pub(crate) fn relaxed(self) -> Self {
        self.with("synchronous_commit", "off")
    }

    /// Waits for a lock for two seconds, and then is told so, which costs a statement that need not wait nothing. Not for less: a server needs a second
    /// to find a deadlock, which is nobody's lock.
    pub(crate) fn impatient(self) -> Self {
        self.with("lock_timeout", "2s")
    }

    /// Waits for a lock for a quarter of a second. For statements that many wait for, and that are sent again: one in a deadlock gives way, too.
    pub(crate) fn prompt(self) -> Self {
        self.with("lock_timeout", "250ms")
    }

    /// Its statements are ended by the server before they take so long that their connection counts as dead: with a connection that is dropped a
    /// statement does not end, and keeps what it has locked.
    pub(crate) fn brief(self) -> Self {
        self.with("statement_timeout", "10s")
    }

    /// As [`Link::brief`], for what somebody waits for.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) fn hasty(self) -> Self {
        self.with("statement_timeout", "2500ms")
    }

    /// Whether it has no connection yet.
    pub(crate) fn is_new(&self) -> bool {
        self.connection.is_none() && !self.shares
    }

    /// The connection, made now if there is none.
    pub(crate) async fn get(&mut self) -> sqlx::Result<&mut PgConnection> {
        Ok(self.get_since().await?.0)
    }

    /// The same, and since when it is connected: what was learned of a server before may be of another one. So it is an error once when the database has
    /// moved: whoever remembers anything of the last server forgets that with any error. And whether it was made for this, and plans anew.
    pub(crate) async fn get_since(&mut self) -> sqlx::Result<(&mut PgConnection, Instant, bool)> {
        let before = self.connection.take();
        if (before.is_some() || self.shares) && self.is_elsewhere() {
            (self.terms, self.shares) = (None, false);
            return Err(sqlx::Error::Io(std::io::Error::other("the database has moved to another host")));
        }
        if let (true, None, Some(shared)) = (self.shares, &before, &self.wires.shared)
            && shared.deaths() != self.deaths
        {
            self.shares = false;
            return Err(sqlx::Error::Io(std::io::Error::other("the last connection is gone, and the server may be another one by now")));
        }
        let mut is_fresh = false;
        let connection = match (before, &self.wires.shared) {
            (Some(connection), _) => connection,
            (None, Some(shared)) => {
                let deaths = shared.deaths();
                let lent = bounded(Box::pin(shared.lend(&self.wires.pool, self.purpose, &self.settings))).await?;
                (self.to, self.since, self.terms, self.shares) = (lent.to, lent.since, Some(lent.terms), true);
                (self.deaths, is_fresh) = (deaths, lent.is_fresh);
                lent.connection
            }
            (None, None) => {
                // Boxed: with encryption it is large, and every loop holds one of these.
                let made = bounded(Box::pin(connect_along(&self.wires.pool, (self.purpose, None), &self.settings))).await;
                let (to, connection) = made?;
                (self.to, self.since, is_fresh) = (to, Instant::now(), true);
                connection
            }
        };
        Ok((self.connection.insert(connection), self.since, is_fresh))
    }

    /// Whether the pool leads to another host by now. With another password it does not.
    fn is_elsewhere(&mut self) -> bool {
        let now = self.wires.pool.connect_options();
        if Arc::ptr_eq(&now, &self.to) {
            return false;
        }
        let is_elsewhere = !is_same_place(&now, &self.to);
        self.to = now;
        is_elsewhere
    }

    /// Warns when our settings are not in force; a pooler that does more harm than that is an error. In the simple protocol, which every pooler takes.
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

    /// Looks at what came of a statement: after anything but a refusal by the server, the connection is not used again.
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
            if let (Some(shared), Some(_)) = (&self.wires.shared, &self.terms) {
                shared.bury(self.deaths);
            }
            (self.connection, self.terms, self.shares) = (None, None, false);
        }
        result
    }

    /// What is shared is for others until the next statement.
    fn give_back(&mut self) {
        let Some(shared) = &self.wires.shared else { return };
        if let Some((connection, terms)) = self.connection.take().zip(self.terms.take()) {
            let lent = Lent { connection, to: Arc::clone(&self.to), since: self.since, terms, is_fresh: false };
            shared.give_back(lent, self.purpose, &self.settings);
        }
    }

    /// Ends the connection politely.
    pub(crate) async fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = timeout(Duration::from_secs(1), connection.close()).await;
        }
    }
}

/// Whether the database, or a store of a cluster, was found to be on another server: it is there at once, and need not be waited for.
pub(crate) fn has_moved(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.message().contains(MOVED),
        sqlx::Error::Io(error) => error.to_string().contains(MOVED),
        _ => false,
    }
}

/// Waits until a statement of some worker finds that its store has moved.
pub(super) async fn told_of_a_move() {
    MOVES.notified().await;
}

/// How long to wait before what failed so is tried again.
pub(crate) fn pause_after(error: &sqlx::Error) -> Duration {
    Duration::from_millis(if has_moved(error) { 50 } else { 500 })
}

/// This pause or up to twice as long, drawn anew at each call, so that workers whose server comes back do not retry in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + fastrand::f64())
}

/// A statement that takes longer than any of ours should fails as a broken connection does, and [`Link::note`] drops it.
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
