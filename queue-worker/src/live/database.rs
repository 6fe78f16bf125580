//! Connections to a database that is configured by a URL or runs on the embedded server. This module creates the pool shared with
//! handlers. The module `store_connection` creates the worker's own connections.

use std::{fmt, time::Duration};

use queue_core::{Error as CoreError, Queue, Store, migrate};
use sqlx::{Connection as _, PgPool, postgres::PgPoolOptions};
use tokio::time::timeout;

use super::{
    address::Address,
    follow::{self, Pools},
    fresh::PoolFreshness,
    hosts::Hosts,
    standby::OnStandby,
};
use crate::error::Error;

/// Connection pool for a database, together with the embedded server if the database runs on it.
///
/// ```no_run
/// # async fn example() -> Result<(), queue_worker::Error> {
/// use queue_worker::{Database, Worker, shutdown_signal};
///
/// let database = Database::from_env().await?;
/// database.migrate(queue_core::Store::default()).await?;
/// Worker::new(database.pool().clone()).run(shutdown_signal()).await?;
/// database.close().await;
/// # Ok(()) }
/// ```
///
/// A URL may name several hosts, such as `postgres://app@one,two:5433/app`. The pool connects to the host that accepts writes. After a
/// failover, the pool switches to the new primary. See `docs/ADDRESSES.md`.
#[must_use = "an embedded server stops when its last user is dropped"]
pub struct Database {
    pool: PgPool,
    queue: Queue,
    /// Direct connections to the server, if the main pool connects through a pooler.
    direct: Option<Box<Self>>,
    #[cfg(all(feature = "cli", feature = "dashboard"))]
    wanted: super::address::TargetSession,
    /// Pools that are redirected when another host becomes the current host. `None` for a URL with a single host.
    #[cfg(all(feature = "cli", feature = "dashboard"))]
    pools: Option<Pools>,
    #[cfg(feature = "embedded")]
    embedded: Option<queue_embedded::Embedded>,
}

/// Options of a [`Database`]: URLs, pool size, and behavior on a standby. Created by [`Database::options`].
///
/// ```no_run
/// # async fn example() -> Result<(), queue_worker::Error> {
/// let database = queue_worker::Database::options().url("postgres://app@db.internal/app").pool_size(40).connect().await?;
/// # database.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "nothing is connected before `connect` is awaited"]
pub struct DatabaseOptions {
    url: Option<String>,
    direct_url: Option<String>,
    pool_size: u32,
    on_standby: OnStandby,
}

/// Default pool size. A small pool is sufficient for handlers, because they spend most of their time waiting for other services.
const POOL_SIZE: u32 = 20;

/// Size of the pool for direct connections. A small pool is sufficient, because its users also open their own connections.
const DIRECT_POOL_SIZE: u32 = 4;

/// Maximum time to wait for connections in use when a pool is closed.
const PATIENCE: Duration = Duration::from_secs(10);

impl Database {
    /// Connects to the database at `DATABASE_URL`. The variable `QUEUE_POOL_SIZE` sets the pool size.
    ///
    /// Without `DATABASE_URL`, the embedded server is started or joined. A release build uses the embedded server only if `QUEUE_EMBEDDED`
    /// is `true`, so a deployment without `DATABASE_URL` fails. If the embedded server is used although `QUEUE_EMBEDDED` is not `true`, a
    /// warning is logged that only this machine can access the database.
    ///
    /// # Errors
    /// Returns any error from [`DatabaseOptions::connect`]. Also returns [`Error::NoDatabase`] if a release build runs without
    /// `DATABASE_URL` and without `QUEUE_EMBEDDED=true`, or [`Error::Config`] if the pool size is not a number.
    pub async fn from_env() -> Result<Self, Error> {
        let options = DatabaseOptions::from_env()?;
        let is_set = std::env::var_os("QUEUE_EMBEDDED").is_some_and(|value| value == "true");
        if options.url.is_none() && !is_set && !cfg!(debug_assertions) {
            return Err(Error::NoDatabase);
        }
        let database = options.connect().await?;
        if !is_set {
            database.log_location(Store::default());
        }
        Ok(database)
    }

    /// Warns if the embedded server is in use because no database URL is configured.
    pub(crate) fn log_location(&self, store: Store) {
        #[cfg(feature = "embedded")]
        if let Some(server) = &self.embedded {
            tracing::warn!(
                folder = %server.folder().display(),
                url = server.url(),
                schema = store.schema(),
                "no database is configured: using an embedded PostgreSQL, which only programs on this machine can see; set DATABASE_URL"
            );
        }
        #[cfg(not(feature = "embedded"))]
        let _ = (self, store);
    }

    /// Connects to the database at `url`, of the form `postgres://user:password@host:5432/name`. The URL may name several hosts.
    ///
    /// # Errors
    /// Returns [`Error::Database`] or [`Error::Address`] if the URL is invalid, [`Error::Connect`] if the connection fails, or
    /// [`Error::NoHost`] if none of several hosts qualifies.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::options().url(url).connect().await
    }

    /// Returns the default options. Set options with the methods of [`DatabaseOptions`], and then call [`DatabaseOptions::connect`].
    pub fn options() -> DatabaseOptions {
        DatabaseOptions::default()
    }

    /// Connects to the database of the embedded server. Starts the server if necessary. The server stops when its last user closes or
    /// drops its [`Database`]. The data is kept.
    ///
    /// # Errors
    /// Returns `Error::Embedded` with instructions if the server cannot be started, or [`Error::NoDatabase`] if this crate was built
    /// without the feature `embedded`.
    pub async fn embedded() -> Result<Self, Error> {
        Self::options().connect().await
    }

    async fn at(url: &str, pool_size: u32, on_standby: OnStandby) -> Result<Self, Error> {
        let mut address = Address::read(url)?;
        for host in &mut address.hosts {
            if host.get_application_name().is_none() {
                *host = host.clone().application_name("queue-worker");
            }
        }
        let (target, hosts) = (address.wanted, Hosts::new(address));
        // The first connection bypasses the pool, because the pool would retry for half a minute and then report only a timeout.
        let (found, fresh) = match on_standby {
            OnStandby::Exit => (hosts.find().await?, PoolFreshness::default()),
            OnStandby::Wait => (hosts.find_patiently().await?, PoolFreshness::default().patient()),
        };
        hosts.set_present(found.nth);
        let pool = fresh.watch(PgPoolOptions::new().max_connections(pool_size), target).connect_lazy_with(found.options.clone());
        let pools = if hosts.address().hosts.len() > 1 {
            let pools = Pools::default();
            pools.add(&pool, &fresh);
            follow::start(hosts, pools.clone(), found)?;
            Some(pools)
        } else {
            let _ = timeout(PATIENCE, found.connection.close()).await;
            None
        };
        #[cfg(not(all(feature = "cli", feature = "dashboard")))]
        drop(pools);
        Ok(Self {
            queue: Queue::new(&pool),
            pool,
            direct: None,
            #[cfg(all(feature = "cli", feature = "dashboard"))]
            wanted: target,
            #[cfg(all(feature = "cli", feature = "dashboard"))]
            pools,
            #[cfg(feature = "embedded")]
            embedded: None,
        })
    }

    /// Creates another pool for the same database. If the main pool connects through a pooler, the new pool bypasses the pooler. If the
    /// URL lists several hosts, the new pool is redirected when the database moves to another host.
    #[cfg(all(feature = "cli", feature = "dashboard"))]
    pub(crate) fn another_pool(&self, options: PgPoolOptions) -> PgPool {
        let Self { pool, wanted, pools, .. } = self.direct.as_deref().unwrap_or(self);
        let fresh = PoolFreshness::default();
        let pool = fresh.watch(options, *wanted).connect_lazy_with((*pool.connect_options()).clone());
        if let Some(pools) = pools {
            pools.add(&pool, &fresh);
        }
        pool
    }

    #[cfg(feature = "embedded")]
    async fn in_embedded(pool_size: u32) -> Result<Self, Error> {
        let server = queue_embedded::start(queue_embedded::EmbeddedOptions::default()).await?;
        tracing::info!(folder = %server.folder().display(), "using the embedded PostgreSQL; set DATABASE_URL for another");
        let database = Self::at(server.url(), pool_size, OnStandby::Exit).await?;
        Ok(Self { embedded: Some(server), ..database })
    }

    /// Returns the pool. You can use the pool for enqueues, for [`Worker::new`](crate::Worker::new), and for your own tables.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Returns a clone of the database's handle to the default store. The handle waits for jobs through the direct pool, if there is one.
    pub fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// Returns the pool that connects directly to the server, bypassing a transaction pooler.
    ///
    /// [`Worker::direct`](crate::Worker::direct) and [`Queue::direct`] need this pool, because they keep session state that a transaction
    /// pooler would lose. Without a [`direct_url`](DatabaseOptions::direct_url), the main pool is returned.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use queue_worker::{Database, Worker, shutdown_signal};
    ///
    /// let database = Database::options().url("postgres://app@pooler:6432/app").direct_url("postgres://app@db/app").connect().await?;
    /// Worker::new(database.pool().clone()).direct(database.direct()).run(shutdown_signal()).await?;
    /// # Ok(()) }
    /// ```
    pub fn direct(&self) -> &PgPool {
        self.direct.as_ref().map_or(&self.pool, |direct| &direct.pool)
    }

    /// Returns whether the database runs on the embedded server.
    pub fn is_embedded(&self) -> bool {
        #[cfg(feature = "embedded")]
        return self.embedded.is_some();
        #[cfg(not(feature = "embedded"))]
        false
    }

    /// Applies the pending migrations of the store's schema. Returns the versions of the applied migrations.
    ///
    /// # Errors
    /// Returns any error from [`queue_core::migrate()`], or `Error::EmbeddedStore` if the embedded server contains a store that this
    /// release cannot use.
    pub async fn migrate(&self, store: Store) -> Result<Vec<i32>, Error> {
        let mut connection = self.direct().acquire().await?;
        migrate(&mut connection, store).await.map_err(|error| self.placed(error))
    }

    /// Converts a store error. If this release cannot use the embedded server's store, adds the server's data directory.
    pub(crate) fn placed(&self, error: CoreError) -> Error {
        #[cfg(feature = "embedded")]
        if let (Some(server), CoreError::ForeignSchema { .. } | CoreError::ChangedMigration { .. }) = (&self.embedded, &error) {
            return Error::EmbeddedStore { why: error, folder: server.folder().to_owned() };
        }
        #[cfg(not(feature = "embedded"))]
        let _ = self;
        error.into()
    }

    /// Closes the pools, stops following the database's hosts, and detaches from the embedded server. Waits up to ten seconds for
    /// connections in use.
    pub async fn close(self) {
        let all = async { tokio::join!(self.pool.close(), self.direct().close()) };
        let _ = timeout(PATIENCE, all).await;
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self { url: None, direct_url: None, pool_size: POOL_SIZE, on_standby: OnStandby::Exit }
    }
}

/// Formats the options without the URL, which may contain a password.
impl fmt::Debug for DatabaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseOptions").field("pool_size", &self.pool_size).finish_non_exhaustive()
    }
}

impl DatabaseOptions {
    /// Reads the options from `DATABASE_URL`, `QUEUE_DIRECT_URL` and `QUEUE_POOL_SIZE`.
    ///
    /// # Errors
    /// Returns [`Error::Config`] for a pool size that is not a number.
    pub fn from_env() -> Result<Self, Error> {
        let value = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned());
        let pool_size = match value("QUEUE_POOL_SIZE") {
            None => POOL_SIZE,
            Some(value) => value.parse().map_err(|_| Error::Config { key: "pool_size", value, range: SIZES })?,
        };
        Ok(Self { url: value("DATABASE_URL"), direct_url: value("QUEUE_DIRECT_URL"), pool_size, ..Self::default() })
    }

    /// Sets the database URL, of the form `postgres://user:password@host:5432/name`. The URL may name several hosts. Default: the embedded
    /// server.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Sets the URL for direct connections to the server, for use if the main URL leads to a transaction pooler. Default: the main URL.
    ///
    /// Direct connections are used where session state is needed: by a worker's own connections, waits for jobs, and migrations.
    pub fn direct_url(mut self, url: impl Into<String>) -> Self {
        self.direct_url = Some(url.into());
        self
    }

    /// Sets the maximum number of connections in the pool that handlers and the program share. Default: 20. The worker's own connections
    /// are not counted.
    pub fn pool_size(mut self, pool_size: u32) -> Self {
        self.pool_size = pool_size;
        self
    }

    /// Sets the behavior if hosts respond but none of them has the role that the URL requires. Default: [`OnStandby::Exit`], which
    /// returns an error.
    ///
    /// With [`OnStandby::Wait`], the pool connects to one of the responding hosts until a host has the required role. Use this option
    /// only in programs that wait for the required role themselves, as a [`Worker`](crate::Worker) does before it starts.
    pub fn on_standby(mut self, on_standby: OnStandby) -> Self {
        self.on_standby = on_standby;
        self
    }

    /// Connects to the database. Without a URL, the embedded server is started or joined.
    ///
    /// # Errors
    /// Returns [`Error::Config`] for a pool size out of range, [`Error::Database`] or [`Error::Address`] if a URL is invalid,
    /// [`Error::Connect`] if the connection fails, or [`Error::NoHost`] if none of several hosts qualifies. Without a URL, returns
    /// `Error::Embedded` with instructions if the embedded server cannot be started, or [`Error::NoDatabase`] if this crate was built
    /// without the feature `embedded`.
    pub async fn connect(self) -> Result<Database, Error> {
        let Self { url, direct_url, pool_size, on_standby } = self;
        if !(1..=10_000).contains(&pool_size) {
            return Err(Error::Config { key: "pool_size", value: pool_size.to_string(), range: SIZES });
        }
        match url {
            Some(url) => {
                let direct = match direct_url {
                    Some(direct) => Some(Box::new(Database::at(&direct, DIRECT_POOL_SIZE, on_standby).await?)),
                    None => None,
                };
                let database = Database::at(&url, pool_size, on_standby).await?;
                let queue = direct.iter().fold(database.queue.clone(), |queue, direct| queue.direct(&direct.pool));
                Ok(Database { queue, direct, ..database })
            }
            #[cfg(feature = "embedded")]
            None => Database::in_embedded(pool_size).await,
            #[cfg(not(feature = "embedded"))]
            None => Err(Error::NoDatabase),
        }
    }
}

const SIZES: &str = "1 to 10000";
