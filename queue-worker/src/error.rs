//! What can go wrong in a worker. Failures of jobs are not errors: they are verdicts.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use queue_core::RegistryError;

/// An error of running a worker.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store is not what this release needs, a name is wrong, or what an operator asked for cannot be done.
    #[error(transparent)]
    Core(#[from] queue_core::Error),
    /// The job types of this binary cannot be run as they are.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The database failed.
    #[error("{}", said(.0))]
    Database(#[from] sqlx::Error),
    /// The database does not let us in, or is not there.
    #[error("cannot connect to {place}: {}", no_way_in(.source))]
    Connect {
        /// Host, port and database; no password.
        place: String,
        /// Why.
        source: sqlx::Error,
    },
    /// The database's URL says something that is not understood.
    #[error("the database's URL cannot be used: {0}")]
    Address(String),
    /// None of the hosts that the database's URL names will do.
    #[error(
        "no host of the database is as wanted: {why}; promote one or wait for it, or say in the URL what will do: `target_session_attrs=any`, \
         `prefer-standby` or others"
    )]
    NoHost {
        /// What each of them said.
        why: String,
        /// Whether one answered that may yet become what is wanted.
        standby: bool,
    },
    /// The database takes no writes, so that a worker cannot work on it.
    #[error(
        "the database is a standby, or takes no writes for another reason; name its primary, or several hosts (`postgres://user@one,two/name`), or let the \
         worker wait: `--on-standby wait` (QUEUE_ON_STANDBY)"
    )]
    Standby,
    /// A pooler of transactions does not keep prepared statements apart, so that every statement may be another's.
    #[error(
        "a pooler in front of the database mixes up prepared statements; set `max_prepared_statements` (PgBouncer 1.21 or later), let it pool sessions \
         (`pool_mode = session`), or name the server itself: QUEUE_DIRECT_URL (`--direct-url`)"
    )]
    Pooler,
    /// No database was named, and there is no embedded one.
    #[error(
        "no database is named; set DATABASE_URL, or QUEUE_EMBEDDED=true (`--embedded`) for a PostgreSQL of this machine's own that nobody elsewhere sees, if the feature `embedded` is on"
    )]
    NoDatabase,
    /// The embedded server does not start.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Embedded(#[from] queue_embedded::EmbeddedError),
    /// The embedded server has a store that this release cannot use.
    #[cfg(feature = "embedded")]
    #[error(
        "{why}; it is in the embedded PostgreSQL of this machine: if nobody needs what that keeps, end what uses it and remove its folder \
         {}, or set QUEUE_PG_DATA to another", .folder.display()
    )]
    EmbeddedStore {
        /// What is wrong with it.
        why: queue_core::Error,
        /// The folder of the server.
        folder: std::path::PathBuf,
    },
    /// A limit that makes no sense, or that two types give different figures.
    #[error("the limit {name}: {why}")]
    Limit {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A setting that makes no sense.
    #[error("{key} is {value}; it must be {range}")]
    Config {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is accepted.
        range: &'static str,
    },
    /// Anybody could come in.
    #[cfg(feature = "dashboard")]
    #[error("others can reach {address}, so the dashboard wants a token there; set QUEUE_DASHBOARD_TOKEN, or listen on 127.0.0.1")]
    OpenDashboard {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// The dashboard cannot be reached at its address.
    #[cfg(feature = "dashboard")]
    #[error("the dashboard cannot listen on {address}: {why}; name another address, or port 0 for any that is free")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        why: std::io::Error,
    },
    /// Health checks cannot be answered at their address: it is no address of this machine, or may not be used. One that another process has is waited
    /// for.
    #[cfg(feature = "health")]
    #[error(
        "health checks cannot be answered on {address}: {why}; name another address, or port 0 for any that is free (`--health`, QUEUE_HEALTH)"
    )]
    Health {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        why: std::io::Error,
    },
    /// One of the worker's own threads could not be started.
    #[error("a thread of the worker cannot be started: {0}")]
    Thread(String),
    /// The function that makes the workers of many stores has panicked.
    #[error("the function that makes a store's worker has panicked")]
    Making,
    /// What looks after many stores has panicked, which the log tells of. All of them are let go.
    #[error("what looks after the stores has ended by itself, which is a defect of this library; start the process again")]
    Untended,
}

/// What `Display` says. The driver's own `Debug` prints the server's DETAIL, which may be a whole row, payload included.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl Error {
    /// Whether trying again may help: the database is away, full, restarting or a standby, or it broke off a deadlock.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Database(error) | Self::Connect { source: error, .. } | Self::Core(queue_core::Error::Database(error)) => {
                transient(error)
            }
            Self::NoHost { .. } | Self::Standby => true,
            _ => false,
        }
    }
}

/// Warns of an error after which a loop of the worker tries again. While the database is away every loop fails again and again. At most one
/// line a second says so; it counts those left out.
pub(crate) fn complain(error: &sqlx::Error, what: &'static str) {
    static LAST: Mutex<(Option<Instant>, u32)> = Mutex::new((None, 0));
    let unsaid = if transient(error) {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
            last.1 += 1;
            return;
        }
        std::mem::replace(&mut *last, (Some(Instant::now()), 0)).1
    } else {
        0
    };
    tracing::warn!(error = said(error), unsaid, "{what}");
}

/// What is wrong with a connection, and what to do about it if it was for the want of encryption.
pub(crate) fn said(error: &sqlx::Error) -> String {
    let message = queue_core::message(error);
    match encryption(&message) {
        Some(fix) => format!("{message}; {fix}"),
        None => message,
    }
}

/// As [`said`], of the first connection: of a server that is not there, which part of the address to look at.
fn no_way_in(error: &sqlx::Error) -> String {
    let said = said(error);
    match error {
        sqlx::Error::Io(_) if !said.contains("; ") => {
            format!(
                "{said}; see whether the server runs, and look at host and port in the address: `postgres://user:password@HOST:PORT/name`"
            )
        }
        _ => said,
    }
}

/// What helps when client and server do not agree about encryption, or about a certificate.
fn encryption(message: &str) -> Option<&'static str> {
    const WITHOUT: &str = "this program was built without TLS: turn on the feature `tls` of `queue-worker`, which is on by default";
    let about = |text| message.contains(text);
    if about("built without TLS") || about("no encryption") && !cfg!(feature = "tls") {
        Some(WITHOUT)
    } else if about("no encryption") {
        Some("the server takes only encrypted connections: say `sslmode=require` in the database's URL")
    } else if about("does not support TLS") {
        Some("turn on `ssl` in the server's settings, or leave `sslmode` out of the URL if the network can be trusted")
    } else if about("UnknownIssuer") {
        Some("name the authority that signed the server's certificate: `sslrootcert=/path/to/ca.pem` in the URL")
    } else if about("certificate not valid for name") || about("NotValidForName") {
        Some("use the server's name as its certificate has it, or `sslmode=verify-ca`")
    } else {
        None
    }
}

/// Whether a lock was not to be had in time.
pub(crate) fn is_locked(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "55P03")
}

/// As [`Error::is_transient`], for the driver's own error.
pub(crate) fn transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(db) => match db.code().as_deref() {
            // Connection, resources, operator intervention, system error, and a transaction to be repeated.
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
