//! Where the database is: at a URL, or in the embedded server. Makes the pool that handlers share; the worker's own connections are made
//! in `connect`.

use std::{fmt, time::Duration};

use queue_core::{Error as CoreError, Store, migrate};
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

/// A pool of connections, and with it the embedded server if that is where they lead.
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
/// An URL may name several hosts: `postgres://app@one,two:5433/app`. The pool then leads to the one that takes writes, and to another once that one does;
/// `docs/ADDRESSES.md` has the rest.
#[must_use = "an embedded server is stopped when its last user is dropped"]
pub struct Database {
    pool: PgPool,
    /// To the server itself, where the pool leads to a pooler.
    direct: Option<Box<Self>>,
    #[cfg(all(feature = "cli", feature = "dashboard"))]
    wanted: super::address::TargetSession,
    /// Of several hosts: the pools that are led to the one that is worked on.
    #[cfg(all(feature = "cli", feature = "dashboard"))]
    pools: Option<Pools>,
    #[cfg(feature = "embedded")]
    embedded: Option<queue_embedded::Embedded>,
}

/// Where a database is, and how large the pool of connections to it. [`Database::options`] makes one.
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

/// The pool is for handlers, of which many wait for something else most of the time.
const POOL_SIZE: u32 = 20;

/// Of a pool that leads to the server itself: what uses that makes connections of its own.
const DIRECT_POOL_SIZE: u32 = 4;

/// Connections that somebody still holds are waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);

impl Database {
    /// The database at `DATABASE_URL`; without that variable the embedded server's, which is started if it does not run yet, and a warning that
    /// nobody elsewhere sees it. A release build does that only if `QUEUE_EMBEDDED` is `true`: a deployment without its variable is to fail. The
    /// size of the pool is `QUEUE_POOL_SIZE`'s.
    ///
    /// # Errors
    /// As [`DatabaseOptions::connect`]; [`Error::NoDatabase`]; [`Error::Config`] for a size that is no number.
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

    /// Warns that this is a server of our own, if it is: nobody has named a database.
    pub(crate) fn log_location(&self, store: Store) {
        #[cfg(feature = "embedded")]
        if let Some(server) = &self.embedded {
            tracing::warn!(
                folder = %server.folder().display(),
                schema = store.schema(),
                "no database is named, so this works on a PostgreSQL of this machine's own, which nobody elsewhere sees; set DATABASE_URL"
            );
        }
        #[cfg(not(feature = "embedded"))]
        let _ = (self, store);
    }

    /// The database at `url`, which looks like `postgres://user:password@host:5432/name`, and may name several hosts.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Address`] for an URL that cannot be read, [`Error::Connect`] when there is no way in, [`Error::NoHost`] when none of
    /// several hosts will do.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::options().url(url).connect().await
    }

    /// Says which database, and how large its pool is, before it connects.
    pub fn options() -> DatabaseOptions {
        DatabaseOptions::default()
    }

    /// The embedded server's database, which outlives this value; the server stops with its last user.
    ///
    /// # Errors
    /// `Error::Embedded`, which says what to install; [`Error::NoDatabase`] when this crate was built without the feature `embedded`.
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
        let (wanted, hosts) = (address.wanted, Hosts::new(address));
        // One connection by hand: the pool would try for half a minute and then only say that it waited.
        let (found, fresh) = match on_standby {
            OnStandby::Exit => (hosts.find().await?, PoolFreshness::default()),
            OnStandby::Wait => (hosts.find_patiently().await?, PoolFreshness::default().patient()),
        };
        hosts.set_present(found.nth);
        let pool = fresh.watch(PgPoolOptions::new().max_connections(pool_size), wanted).connect_lazy_with(found.options.clone());
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
            pool,
            direct: None,
            #[cfg(all(feature = "cli", feature = "dashboard"))]
            wanted,
            #[cfg(all(feature = "cli", feature = "dashboard"))]
            pools,
            #[cfg(feature = "embedded")]
            embedded: None,
        })
    }

    /// Another pool to the same database, past a pooler, which goes where that goes.
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

    /// The pool: for enqueuing, for [`Worker::new`](crate::Worker::new), and for whatever else the program keeps there.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The pool that leads to the server itself, past a pooler of transactions: for [`Worker::direct`](crate::Worker::direct) and
    /// [`Waiter::start`](queue_core::Waiter::start), which keep sessions. Without a [`direct_url`](DatabaseOptions::direct_url) it is the pool.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use queue_core::Waiter;
    /// use queue_worker::{Database, Worker, shutdown_signal};
    ///
    /// let database = Database::options().url("postgres://app@pooler:6432/app").direct_url("postgres://app@db/app").connect().await?;
    /// let waiter = Waiter::start(database.direct());
    /// Worker::new(database.pool().clone()).direct(database.direct()).run(shutdown_signal()).await?;
    /// # drop(waiter);
    /// # Ok(()) }
    /// ```
    pub fn direct(&self) -> &PgPool {
        self.direct.as_ref().map_or(&self.pool, |direct| &direct.pool)
    }

    /// Whether this is the embedded server's.
    pub fn is_embedded(&self) -> bool {
        #[cfg(feature = "embedded")]
        return self.embedded.is_some();
        #[cfg(not(feature = "embedded"))]
        false
    }

    /// Brings the store's schema up to date; returns the versions applied.
    ///
    /// # Errors
    /// As [`queue_core::migrate()`]; of a store in the embedded server that this release cannot use, `Error::EmbeddedStore`.
    pub async fn migrate(&self, store: Store) -> Result<Vec<i32>, Error> {
        let mut connection = self.direct().acquire().await?;
        migrate(&mut connection, store).await.map_err(|error| self.placed(error))
    }

    /// With the place of a store that this release cannot use, if nobody has named it.
    pub(crate) fn placed(&self, error: CoreError) -> Error {
        #[cfg(feature = "embedded")]
        if let (Some(server), CoreError::ForeignSchema { .. } | CoreError::ChangedMigration { .. }) = (&self.embedded, &error) {
            return Error::EmbeddedStore { why: error, folder: server.folder().to_owned() };
        }
        #[cfg(not(feature = "embedded"))]
        let _ = self;
        error.into()
    }

    /// Closes the pool, then leaves the embedded server; several hosts are not followed any more. Connections that somebody still holds are waited for, up to ten seconds.
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

/// Without the URL, which may hold a password.
impl fmt::Debug for DatabaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseOptions").field("pool_size", &self.pool_size).finish_non_exhaustive()
    }
}

impl DatabaseOptions {
    /// What `DATABASE_URL`, `QUEUE_DIRECT_URL` and `QUEUE_POOL_SIZE` say.
    ///
    /// # Errors
    /// [`Error::Config`] for a size that is no number.
    pub fn from_env() -> Result<Self, Error> {
        let value = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned());
        let pool_size = match value("QUEUE_POOL_SIZE") {
            None => POOL_SIZE,
            Some(value) => value.parse().map_err(|_| Error::Config { key: "pool_size", value, range: SIZES })?,
        };
        Ok(Self { url: value("DATABASE_URL"), direct_url: value("QUEUE_DIRECT_URL"), pool_size, ..Self::default() })
    }

    /// The database at this URL, which looks like `postgres://user:password@host:5432/name`, and may name several hosts. Without one it is the embedded
    /// server's.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Where the server itself is, if the URL leads to a pooler that gives each transaction another session: what keeps a session goes there, which are
    /// a worker's own connections, those who wait for jobs, and a migration. Default: the URL.
    pub fn direct_url(mut self, url: impl Into<String>) -> Self {
        self.direct_url = Some(url.into());
        self
    }

    /// How many connections the pool has at most, for handlers and the program to share: a worker makes its own. Default 20.
    pub fn pool_size(mut self, pool_size: u32) -> Self {
        self.pool_size = pool_size;
        self
    }

    /// What is done if some hosts answer, and none is as the URL wants it. Default [`OnStandby::Exit`]: that is an error. With [`OnStandby::Wait`] the pool
    /// leads to one of them until another will do; for whoever waits for that, as a [`Worker`](crate::Worker) does before it begins.
    pub fn on_standby(mut self, on_standby: OnStandby) -> Self {
        self.on_standby = on_standby;
        self
    }

    /// Connects, and starts the embedded server if it is meant and does not run yet.
    ///
    /// # Errors
    /// [`Error::Config`] for a pool of a size out of range, [`Error::Database`] or [`Error::Address`] for an URL that cannot be read, [`Error::Connect`] when
    /// there is no way in, [`Error::NoHost`] when none of several hosts will do, `Error::Embedded`, which says what to install; [`Error::NoDatabase`] when this crate was built without the feature
    /// `embedded`.
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
                Ok(Database { direct, ..Database::at(&url, pool_size, on_standby).await? })
            }
            #[cfg(feature = "embedded")]
            None => Database::in_embedded(pool_size).await,
            #[cfg(not(feature = "embedded"))]
            None => Err(Error::NoDatabase),
        }
    }
}

const SIZES: &str = "1 to 10000";
