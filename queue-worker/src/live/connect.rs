//! The worker's own connections. Handlers may exhaust the pool; claims, settles and heartbeats never wait for it.
//!
//! Each loop owns one [`Link`]. A link that failed is replaced at its next use; nothing here retries.

use std::time::{Duration, Instant};

use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::session::SETTINGS;
use crate::error::complain;

/// A connection that is made when first needed, and made anew after it failed.
pub(crate) struct Link {
    options: PgConnectOptions,
    /// Without our settings, for a pooler that refuses them.
    plain: PgConnectOptions,
    connection: Option<PgConnection>,
    /// When that was made.
    since: Instant,
}

/// How long one statement of ours may take before its connection counts as dead.
const PATIENCE: Duration = Duration::from_secs(15);

/// Nothing depends on the settings but speed, nor on notifications.
const POOLER: &str = "a pooler is in front of the database: without settings of our own plans may be slow, and jobs are found by polling; \
    give the worker a direct connection";

impl Link {
    /// To the database of `pool`, outside it.
    pub(crate) fn new(pool: &PgPool, purpose: &str) -> Self {
        let options = (*pool.connect_options()).clone();
        let plain = options.application_name(&format!("queue-worker {purpose}")).disable_statement_logging();
        Self { options: plain.clone().options(SETTINGS), plain: plain.extra_float_digits(None), connection: None, since: Instant::now() }
    }

    /// Another of the same kind.
    pub(crate) fn another(&self) -> Self {
        Self { options: self.options.clone(), plain: self.plain.clone(), connection: None, since: Instant::now() }
    }

    /// Commits without waiting for the disk. Only for what may be lost: claims and promotions, whose jobs are then still waiting.
    pub(crate) fn relaxed(mut self) -> Self {
        self.options = self.options.options([("synchronous_commit", "off")]);
        self
    }

    /// Waits for a lock for two seconds, and then is told so, which costs a statement that need not wait nothing. Not for less: a server needs a second
    /// to find a deadlock, which is nobody's lock.
    pub(crate) fn impatient(mut self) -> Self {
        self.options = self.options.options([("lock_timeout", "2s")]);
        self
    }

    /// Waits for a lock for a quarter of a second. For statements that many wait for, and that deadlock with nobody.
    pub(crate) fn prompt(mut self) -> Self {
        self.options = self.options.options([("lock_timeout", "250ms")]);
        self
    }

    /// Its statements are ended by the server before they take so long that their connection counts as dead: with a connection that is dropped a
    /// statement does not end, and keeps what it has locked.
    pub(crate) fn brief(mut self) -> Self {
        self.options = self.options.options([("statement_timeout", "10s")]);
        self
    }

    /// As [`Link::brief`], for what somebody waits for.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) fn hasty(mut self) -> Self {
        self.options = self.options.options([("statement_timeout", "2500ms")]);
        self
    }

    /// Whether it has no connection yet.
    pub(crate) fn is_new(&self) -> bool {
        self.connection.is_none()
    }

    /// The connection, made now if there is none.
    pub(crate) async fn get(&mut self) -> sqlx::Result<&mut PgConnection> {
        Ok(self.get_since().await?.0)
    }

    /// The same, and since when it is connected: what was learned of a server before may be of another one.
    pub(crate) async fn get_since(&mut self) -> sqlx::Result<(&mut PgConnection, Instant)> {
        let connection = if let Some(connection) = self.connection.take() {
            connection
        } else {
            // Boxed: with encryption it is large, and every loop holds one of these.
            let connection = bounded(Box::pin(self.connect())).await?;
            self.since = Instant::now();
            connection
        };
        Ok((self.connection.insert(connection), self.since))
    }

    async fn connect(&self) -> sqlx::Result<PgConnection> {
        let connected = self.options.connect().await;
        if let Err(error) = &connected
            && is_refused_setting(error)
        {
            complain(error, POOLER);
            return self.plain.connect().await;
        }
        connected
    }

    /// Warns when our settings are not in force.
    pub(crate) async fn check_settings(&mut self) -> sqlx::Result<()> {
        let mode = "select pg_catalog.current_setting('plan_cache_mode') = 'force_generic_plan'";
        let in_force: bool = bounded(sqlx::query_scalar(mode).fetch_one(self.get().await?)).await?;
        if !in_force {
            tracing::warn!("{POOLER}");
        }
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

/// Whether a pooler refused settings with which a connection was to begin.
pub(super) fn is_refused_setting(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().starts_with("unsupported startup parameter"))
}

/// A statement that takes longer than any of ours should fails as a broken connection does, and [`Link::note`] drops it.
pub(crate) async fn bounded<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    timeout(PATIENCE, statement).await.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}
