//! Where the database is: at a URL, or in the embedded server. Makes the pool that handlers share; the worker's own connections are made
//! in `connect`.

use std::{fmt, str::FromStr as _, time::Duration};

use queue_core::{Error as CoreError, Store, migrate};
use sqlx::{
    ConnectOptions as _, Connection as _, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::timeout;

use super::connect::is_refused_setting;
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
#[derive(Debug)]
#[must_use = "an embedded server is stopped when its last user is dropped"]
pub struct Database {
    pool: PgPool,
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
    pool_size: u32,
}

/// The pool is for handlers, of which many wait for something else most of the time.
const POOL_SIZE: u32 = 20;

/// A connection that lay idle for longer is tried before it is lent. Trying each doubles a short query's time; trying none gives a handler
/// the connections that a restarted server has closed.
const TRIED_AFTER: Duration = Duration::from_secs(1);

/// One whose other end is gone without a word would never answer.
const TRIED_FOR: Duration = Duration::from_secs(2);

/// A server that does not answer within this time is out of reach.
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
        let is_said = std::env::var_os("QUEUE_EMBEDDED").is_some_and(|said| said == "true");
        if options.url.is_none() && !is_said && !cfg!(debug_assertions) {
            return Err(Error::NoDatabase);
        }
        let database = options.connect().await?;
        if !is_said {
            database.tell_where(Store::default());
        }
        Ok(database)
    }

    /// Warns that this is a server of our own, if it is: nobody has named a database.
    pub(crate) fn tell_where(&self, store: Store) {
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

    /// The database at `url`, which looks like `postgres://user:password@host:5432/name`.
    ///
    /// # Errors
    /// [`Error::Database`] for an URL that cannot be read, [`Error::Connect`] when there is no way in.
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

    async fn at(url: &str, pool_size: u32) -> Result<Self, Error> {
        let options = read(url)?;
        let options = if options.get_application_name().is_some() { options } else { options.application_name("queue-worker") };
        // One connection by hand: the pool would try for half a minute and then only say that it waited.
        let options = probe(options).await?;
        let pool = PgPoolOptions::new().max_connections(pool_size).test_before_acquire(false).before_acquire(|connection, lent| {
            Box::pin(async move {
                if lent.idle_for > TRIED_AFTER {
                    return Ok(timeout(TRIED_FOR, connection.ping()).await.is_ok_and(|alive| alive.is_ok()));
                }
                Ok(true)
            })
        });
        Ok(Self {
            pool: pool.connect_lazy_with(options),
            #[cfg(feature = "embedded")]
            embedded: None,
        })
    }

    #[cfg(feature = "embedded")]
    async fn in_embedded(pool_size: u32) -> Result<Self, Error> {
        let server = queue_embedded::start(queue_embedded::EmbeddedOptions::default()).await?;
        tracing::info!(folder = %server.folder().display(), "using the embedded PostgreSQL; set DATABASE_URL for another");
        let database = Self::at(server.url(), pool_size).await?;
        Ok(Self { embedded: Some(server), ..database })
    }

    /// The pool: for enqueuing, for [`Worker::new`](crate::Worker::new), and for whatever else the program keeps there.
    pub fn pool(&self) -> &PgPool {
        &self.pool
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
        let mut connection = self.pool.acquire().await?;
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

    /// Closes the pool, then leaves the embedded server. Connections that somebody still holds are waited for, up to ten seconds.
    pub async fn close(self) {
        let _ = timeout(PATIENCE, self.pool.close()).await;
    }
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self { url: None, pool_size: POOL_SIZE }
    }
}

/// Without the URL, which may hold a password.
impl fmt::Debug for DatabaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseOptions").field("pool_size", &self.pool_size).finish_non_exhaustive()
    }
}

impl DatabaseOptions {
    /// What `DATABASE_URL` and `QUEUE_POOL_SIZE` say.
    ///
    /// # Errors
    /// [`Error::Config`] for a size that is no number.
    pub fn from_env() -> Result<Self, Error> {
        let said = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned());
        let pool_size = match said("QUEUE_POOL_SIZE") {
            None => POOL_SIZE,
            Some(value) => value.parse().map_err(|_| Error::Config { key: "pool_size", value, range: SIZES })?,
        };
        Ok(Self { url: said("DATABASE_URL"), pool_size })
    }

    /// The database at this URL, which looks like `postgres://user:password@host:5432/name`. Without one it is the embedded server's.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// How many connections the pool has at most, for handlers and the program to share: a worker makes its own. Default 20.
    pub fn pool_size(mut self, pool_size: u32) -> Self {
        self.pool_size = pool_size;
        self
    }

    /// Connects, and starts the embedded server if it is meant and does not run yet.
    ///
    /// # Errors
    /// [`Error::Config`] for a pool of a size out of range, [`Error::Database`] for an URL that cannot be read, [`Error::Connect`] when there
    /// is no way in, `Error::Embedded`, which says what to install; [`Error::NoDatabase`] when this crate was built without the feature
    /// `embedded`.
    pub async fn connect(self) -> Result<Database, Error> {
        let Self { url, pool_size } = self;
        if !(1..=10_000).contains(&pool_size) {
            return Err(Error::Config { key: "pool_size", value: pool_size.to_string(), range: SIZES });
        }
        match url {
            Some(url) => Database::at(&url, pool_size).await,
            #[cfg(feature = "embedded")]
            None => Database::in_embedded(pool_size).await,
            #[cfg(not(feature = "embedded"))]
            None => Err(Error::NoDatabase),
        }
    }
}

const SIZES: &str = "1 to 10000";

/// The options with which a connection was made by hand. No statement of ours is compiled: that takes the server longer than the statement.
/// Where a pooler refuses such a setting, it is left out.
async fn probe(options: PgConnectOptions) -> Result<PgConnectOptions, Error> {
    let own = options.clone().options([("jit", "off")]);
    match try_out(&own).await {
        Ok(()) => Ok(own),
        Err(Error::Connect { source, .. }) if is_refused_setting(&source) => try_out(&options).await.map(|()| options),
        Err(error) => Err(error),
    }
}

async fn try_out(options: &PgConnectOptions) -> Result<(), Error> {
    let away = || Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
    let connected = timeout(PATIENCE, options.connect()).await.unwrap_or_else(|_| away());
    let connection = connected.map_err(|source| Error::Connect { place: place(options), source })?;
    let _ = timeout(PATIENCE, connection.close()).await;
    Ok(())
}

/// The driver takes anything with a colon for an URL. Where a scheme is missing, or a password holds a `/` or `#` that is not escaped, parts
/// of it would become a host or a database, and be shown as such.
fn read(url: &str) -> Result<PgConnectOptions, Error> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
    let before_query = rest.and_then(|rest| rest.split('?').next());
    let sound = before_query.is_some_and(|rest| !rest.contains('#') && rest.split_once('/').is_none_or(|(_, name)| !name.contains('@')));
    if !sound {
        return Err(sqlx::Error::Configuration("no postgres URL".into()).into());
    }
    Ok(PgConnectOptions::from_str(url)?)
}

/// Where the options lead, without user and password.
fn place(options: &PgConnectOptions) -> String {
    let host = options.get_socket().map_or_else(|| options.get_host().to_owned(), |socket| socket.display().to_string());
    let database = options.get_database().unwrap_or("the user's default");
    format!("the database `{database}` at {host}:{}", options.get_port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f64_no_part_of_a_password_passes_for_a_host_or_a_database() {
        for url in ["u:secret@h/d", "postgres://u:1/secret@h/d", "postgres://u:1#secret@h/d", "mysql://u:secret@h/d", "secret::", ""] {
            let error = read(url).unwrap_err();
            assert!(matches!(error, Error::Database(sqlx::Error::Configuration(_))) && !error.to_string().contains("secret"), "{error}");
        }
        let options = read("postgres://u:s%2Fecret@h:5/d?application_name=a@b").unwrap();
        assert_eq!(place(&options), "the database `d` at h:5");
    }
}
