//! Errors of a worker. A failed job is not an error of the worker, which settles the job with a verdict.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use queue_core::registry::RegistryError;

/// Error that prevents a worker from starting or running, or that makes an operation fail.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
/// use queue_worker::{Error, Worker, shutdown_signal};
///
/// match Worker::new(pool).run(shutdown_signal()).await {
///     Ok(()) => println!("stopped"),
///     Err(error) if error.is_transient() => println!("retry later: {error}"),
///     Err(Error::Core(error)) => println!("cannot use the store: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `queue_core` returned an error, for example because the store does not match this release, a name is invalid, or an operation was
    /// rejected.
    #[error(transparent)]
    Core(#[from] queue_core::Error),
    /// The job types of this binary are invalid.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The database or the driver returned an error.
    #[error("{}", error_message(.0))]
    Database(#[from] sqlx::Error),
    /// The database rejected the connection or could not be reached.
    #[error("cannot connect to {place}: {}", connect_message(.source))]
    Connect {
        /// Host, port and database, without the password.
        place: String,
        /// Underlying error.
        source: sqlx::Error,
    },
    /// The database URL is invalid.
    #[error("invalid database URL: {0}")]
    Address(String),
    /// No host in the database URL has the required server role, such as primary.
    #[error(
        "no host of the database has the required role: {why}; promote one or wait for it, or set in the URL what is acceptable: `target_session_attrs=any`, \
         `prefer-standby` or others"
    )]
    NoHost {
        /// Role or connection error of each host, as text.
        why: String,
        /// Whether any host responded. The role of a host that responded may still change to the required role.
        standby: bool,
    },
    /// The database is read-only, so a worker cannot use it.
    #[error(
        "the database is a standby or read-only for another reason; name its primary, or several hosts (`postgres://user@one,two/name`), or let the \
         worker wait: `--on-standby wait` (QUEUE_ON_STANDBY)"
    )]
    Standby,
    /// A transaction pooler mixes up its clients' prepared statements, so the server may execute the wrong statement.
    #[error(
        "a pooler in front of the database mixes up prepared statements; set `max_prepared_statements` (PgBouncer 1.21 or later), let it pool sessions \
         (`pool_mode = session`), or name the server itself: QUEUE_DIRECT_URL (`--direct-url`)"
    )]
    Pooler,
    /// No database URL is configured, and the embedded server is not enabled or not part of this build.
    #[error(
        "no database is named; set DATABASE_URL, or QUEUE_EMBEDDED=true (`--embedded`) for a private PostgreSQL server on this machine, with the feature `embedded`"
    )]
    NoDatabase,
    /// The embedded server could not be started.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Embedded(#[from] queue_embedded::EmbeddedError),
    /// This release cannot use the store in the embedded server.
    #[cfg(feature = "embedded")]
    #[error(
        "{why}; the store is in the embedded PostgreSQL of this machine: if its data is not needed, stop the processes that use it and remove its folder \
         {}, or set QUEUE_PG_DATA to another", .folder.display()
    )]
    EmbeddedStore {
        /// Reason why the store cannot be used.
        why: queue_core::Error,
        /// Data directory of the embedded server.
        folder: std::path::PathBuf,
    },
    /// A limit is invalid, or two job types declare the limit differently.
    #[error("limit {name}: {why}")]
    Limit {
        /// Name of the limit.
        name: String,
        /// Reason why the limit was rejected.
        why: String,
    },
    /// The value of a setting is invalid.
    #[error("{key} is {value}; it must be {range}")]
    Config {
        /// Name of the setting.
        key: &'static str,
        /// Invalid value of the setting.
        value: String,
        /// Description of the accepted values.
        range: &'static str,
    },
    /// The dashboard would be reachable from other machines without a token.
    #[cfg(feature = "dashboard")]
    #[error("{address} is reachable by others, so the dashboard requires a token; set QUEUE_DASHBOARD_TOKEN, or listen on 127.0.0.1")]
    OpenDashboard {
        /// Address of the dashboard.
        address: std::net::SocketAddr,
    },
    /// The dashboard cannot listen on its address.
    #[cfg(feature = "dashboard")]
    #[error("the dashboard cannot listen on {address}: {why}; set another address, or port 0 for any free port")]
    Listen {
        /// Address of the dashboard.
        address: std::net::SocketAddr,
        /// Underlying error.
        why: std::io::Error,
    },
    /// The listener of the health checks cannot bind its address, because the address does not belong to this machine or the process lacks
    /// permission. If another process uses the address, no error is returned, and the listener waits until the address is free.
    #[cfg(feature = "health")]
    #[error("health checks cannot listen on {address}: {why}; set another address, or port 0 for any free port (`--health`, QUEUE_HEALTH)")]
    Health {
        /// Address of the listener.
        address: std::net::SocketAddr,
        /// Underlying error.
        why: std::io::Error,
    },
    /// A thread of the worker could not be started.
    #[error("cannot start a thread of the worker: {0}")]
    Thread(String),
    /// The application's callback that configures each store's worker panicked.
    #[error("the function that configures a store's worker panicked")]
    SetupPanicked,
    /// The task that supervises the workers of all stores panicked. The panic was logged, and all workers are stopped.
    #[error("the task that supervises the stores has ended unexpectedly, which is a bug in this library; restart the process")]
    SupervisorPanicked,
}

/// Formats the `Display` text. The derived `Debug` output would include the DETAIL of a database error, which may contain a payload.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl Error {
    /// Returns whether a retry may succeed, for example after a deadlock. Errors caused by a standby, or by a database that is unreachable,
    /// restarting or out of resources, are also transient.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Database(error) | Self::Connect { source: error, .. } | Self::Core(queue_core::Error::Database(error)) => {
                is_transient(error)
            }
            Self::NoHost { .. } | Self::Standby => true,
            _ => false,
        }
    }
}

/// Logs an error of a worker loop that retries. Because every loop fails repeatedly while the database is unreachable, transient errors
/// are logged at most once a second. The log entry contains the number of omitted errors.
pub(crate) fn warn_throttled(error: &sqlx::Error, what: &'static str) {
    static LAST: Mutex<(Option<Instant>, u32)> = Mutex::new((None, 0));
    let unsaid = if is_transient(error) {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
            last.1 += 1;
            return;
        }
        std::mem::replace(&mut *last, (Some(Instant::now()), 0)).1
    } else {
        0
    };
    tracing::warn!(error = error_message(error), unsaid, "{what}");
}

/// Returns the message of an error. If the TLS settings of client and server do not match, the message also suggests a fix.
pub(crate) fn error_message(error: &sqlx::Error) -> String {
    let message = queue_core::message(error);
    match tls_fix(&message) {
        Some(fix) => format!("{message}; {fix}"),
        None => message,
    }
}

/// Returns the message for a failed connection. If the server cannot be reached, the message names the parts of the URL to check.
fn connect_message(error: &sqlx::Error) -> String {
    let message = error_message(error);
    match error {
        sqlx::Error::Io(_) if !message.contains("; ") => {
            format!("{message}; check that the server runs, and check host and port in the URL: `postgres://user:password@HOST:PORT/name`")
        }
        _ => message,
    }
}

/// Returns a suggested fix if the message reports mismatched TLS settings or an invalid certificate.
fn tls_fix(message: &str) -> Option<&'static str> {
    const WITHOUT: &str = "this program was built without TLS: enable the feature `tls` of `queue-worker`, which is on by default";
    let about = |text| message.contains(text);
    if about("built without TLS") || about("no encryption") && !cfg!(feature = "tls") {
        Some(WITHOUT)
    } else if about("no encryption") {
        Some("the server accepts only encrypted connections: set `sslmode=require` in the database URL")
    } else if about("does not support TLS") {
        Some("enable `ssl` in the server's settings, or remove `sslmode` from the URL if the network is trusted")
    } else if about("UnknownIssuer") {
        Some("set the certificate authority that signed the server's certificate: `sslrootcert=/path/to/ca.pem` in the URL")
    } else if about("certificate not valid for name") || about("NotValidForName") {
        Some("use a server name that its certificate contains, or `sslmode=verify-ca`")
    } else {
        None
    }
}

/// Returns whether the statement failed because a lock was not available (SQLSTATE 55P03).
pub(crate) fn is_locked(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "55P03")
}

/// Returns whether a retry may succeed after a driver error. See [`Error::is_transient`].
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(db) => match db.code().as_deref() {
            // SQLSTATE classes: connection exception, insufficient resources, operator intervention, system error, transaction rollback.
            // SQLSTATE codes: read-only transaction, lock not available.
            Some(code) => ["08", "53", "57", "58", "40"].iter().any(|class| code.starts_with(class)) || ["25006", "55P03"].contains(&code),
            None => false,
        },
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        _ => false,
    }
}
