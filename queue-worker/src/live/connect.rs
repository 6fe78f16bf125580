//! The worker's own connections. Handlers may exhaust the pool; claims, settles and heartbeats never wait for it.
//!
//! Each loop owns one [`Link`]. A link that failed is replaced at its next use, and so is one to a host that its pool does not lead to any more; nothing
//! here retries.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::runner::{is_refused_setting, mixes_up};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, Row as _, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::session::SETTINGS;
use crate::error::{Error, complain};

/// A connection that is made when first needed, and made anew after it failed.
pub(crate) struct Link {
    pool: PgPool,
    purpose: &'static str,
    /// Beside those of all our connections.
    settings: Vec<(&'static str, &'static str)>,
    connection: Option<PgConnection>,
    /// To where that was made, and when.
    to: Arc<PgConnectOptions>,
    since: Instant,
}

/// How long one statement of ours may take before its connection counts as dead.
const PATIENCE: Duration = Duration::from_secs(15);

/// Nothing depends on the settings but speed, nor on notifications.
const POOLER: &str = "a pooler is in front of the database: without settings of our own plans may be slow, and jobs are found by polling; \
    give the worker a direct connection";

/// While a connection is being made, it is looked this often whether it is to lead elsewhere by now.
const ELSEWHERE: Duration = Duration::from_millis(200);

impl Link {
    /// To the database of `pool`, outside it: wherever that leads when a connection is made.
    pub(crate) fn new(pool: &PgPool, purpose: &'static str) -> Self {
        Self { pool: pool.clone(), purpose, settings: Vec::new(), connection: None, to: pool.connect_options(), since: Instant::now() }
    }

    /// Another of the same kind.
    pub(crate) fn another(&self) -> Self {
        Self { settings: self.settings.clone(), ..Self::new(&self.pool, self.purpose) }
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

    /// Waits for a lock for a quarter of a second. For statements that many wait for, and that deadlock with nobody.
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
        self.connection.is_none()
    }

    /// The connection, made now if there is none.
    pub(crate) async fn get(&mut self) -> sqlx::Result<&mut PgConnection> {
        Ok(self.get_since().await?.0)
    }

    /// The same, and since when it is connected: what was learned of a server before may be of another one. So it is an error once when the database has
    /// moved: whoever remembers anything of the last server forgets that with any error.
    pub(crate) async fn get_since(&mut self) -> sqlx::Result<(&mut PgConnection, Instant)> {
        let connection = match self.connection.take() {
            Some(_) if self.is_elsewhere() => return Err(sqlx::Error::Io(std::io::Error::other("the database has moved to another host"))),
            Some(connection) => connection,
            None => {
                // Boxed: with encryption it is large, and every loop holds one of these.
                let connection = bounded(Box::pin(self.connect())).await?;
                self.since = Instant::now();
                connection
            }
        };
        Ok((self.connection.insert(connection), self.since))
    }

    /// Whether the pool leads to another host by now. With another password it does not.
    fn is_elsewhere(&mut self) -> bool {
        let now = self.pool.connect_options();
        if Arc::ptr_eq(&now, &self.to) {
            return false;
        }
        let is_elsewhere = !is_same_place(&now, &self.to);
        self.to = now;
        is_elsewhere
    }

    /// To wherever the pool leads when it is made: one to a host that is gone may never be.
    async fn connect(&mut self) -> sqlx::Result<PgConnection> {
        loop {
            self.to = self.pool.connect_options();
            let mut making = std::pin::pin!(connect(&self.to, self.purpose, &self.settings));
            let made = loop {
                if let Ok(made) = timeout(ELSEWHERE, &mut making).await {
                    break Some(made);
                }
                if !is_same_place(&self.pool.connect_options(), &self.to) {
                    break None;
                }
            };
            if let Some(made) = made {
                return made;
            }
        }
    }

    /// Warns when our settings are not in force; a pooler that does more harm than that is an error. In the simple protocol, which every pooler takes.
    pub(crate) async fn check_settings(&mut self) -> Result<(), Error> {
        let mode = "select pg_catalog.current_setting('plan_cache_mode') = 'force_generic_plan'";
        let in_force: bool = bounded(sqlx::raw_sql(mode).fetch_one(self.get().await?)).await?.try_get(0)?;
        if in_force {
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
        if !usable {
            self.connection = None;
        }
        result
    }

    /// Ends the connection politely.
    pub(crate) async fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = timeout(Duration::from_secs(1), connection.close()).await;
        }
    }
}

async fn connect(to: &PgConnectOptions, purpose: &str, settings: &[(&'static str, &'static str)]) -> sqlx::Result<PgConnection> {
    let plain = to.clone().application_name(&format!("queue-worker {purpose}")).disable_statement_logging();
    let connected = plain.clone().options(SETTINGS).options(settings.iter().copied()).connect().await;
    if let Err(error) = &connected
        && is_refused_setting(error)
    {
        complain(error, POOLER);
        // Without our settings, for a pooler that refuses them.
        return plain.extra_float_digits(None).connect().await;
    }
    connected
}

/// Whether both lead to one host.
pub(crate) fn is_same_place(one: &PgConnectOptions, other: &PgConnectOptions) -> bool {
    (one.get_host(), one.get_port(), one.get_socket()) == (other.get_host(), other.get_port(), other.get_socket())
}

/// A statement that takes longer than any of ours should fails as a broken connection does, and [`Link::note`] drops it.
pub(crate) async fn bounded<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    timeout(PATIENCE, statement).await.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}
