//! Errors from starting an embedded server. Each kind of failure has its own variant, so callers can handle it separately.

use std::{io, path::Path, path::PathBuf, time::Duration};

/// Error returned by [`Embedded::start`](crate::Embedded::start). Most messages suggest a fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// No `PostgreSQL` server binaries were found.
    #[error(
        "no PostgreSQL server found in {}; {install}, or set QUEUE_PG_BIN to the folder of its `initdb` and `postgres`, \
         or set DATABASE_URL to a running server",
        list(.looked)
    )]
    NoServer {
        /// Folders that were searched for the binaries.
        looked: Vec<PathBuf>,
        /// Instruction for installing `PostgreSQL` on this system.
        install: String,
    },
    /// All binaries found are older than the oldest supported version.
    #[error("PostgreSQL {version} in {} is too old, 15 or later is required; {install}, or set QUEUE_PG_BIN or DATABASE_URL", .bin.display())]
    TooOld {
        /// Folder of the first binaries found.
        bin: PathBuf,
        /// Major version of the unsupported binaries.
        version: u32,
        /// Instruction for installing `PostgreSQL` on this system.
        install: String,
    },
    /// The folder in `QUEUE_PG_BIN` contains no working server binaries.
    #[error("no working PostgreSQL server in {} ({reason}); set QUEUE_PG_BIN to a folder with `initdb` and `postgres`", .bin.display())]
    BadBinaries {
        /// Folder in which the binaries were expected.
        bin: PathBuf,
        /// Reason why the binaries do not work, as text for the error message.
        reason: String,
    },
    /// No environment variable specifies a folder for the cluster.
    #[error("none of QUEUE_PG_DATA, XDG_DATA_HOME and HOME is set; set QUEUE_PG_DATA to a folder for the database")]
    NoHome,
    /// The cluster was created by a major version of `PostgreSQL` that is not installed.
    #[error(
        "the database in {} was created by PostgreSQL {data}, but only {binaries} is installed; install PostgreSQL {data}, or set QUEUE_PG_BIN \
         to its binaries, or QUEUE_PG_DATA to another folder (`pg_upgrade` moves the data)", .folder.display()
    )]
    WrongVersion {
        /// Directory that contains the cluster.
        folder: PathBuf,
        /// Major version that created the cluster.
        data: u32,
        /// Major version of the installed binaries.
        binaries: u32,
    },
    /// The intended directory of the cluster contains another program's files. The directory is left unchanged.
    #[error("{} contains files, but no database of queue-worker; set QUEUE_PG_DATA to an empty or new folder", .folder.display())]
    ForeignFolder {
        /// Intended directory of the cluster.
        folder: PathBuf,
    },
    /// The cluster belongs to another user.
    #[error("the database in {} belongs to user id {owner}; run as that user, or set QUEUE_PG_DATA to another folder", .folder.display())]
    OtherOwner {
        /// Directory that contains the cluster.
        folder: PathBuf,
        /// User id of the cluster's owner.
        owner: u32,
    },
    /// `PostgreSQL` refuses to run as root, and no other user can access both the cluster's directory and the server binary.
    #[error(
        "PostgreSQL refuses to run as root, no other user can access {}, and user namespaces are not allowed; set QUEUE_PG_DATA \
         to a folder whose parents all have mode o+x, such as /var/lib/queue-worker, or run as another user", .path.display()
    )]
    Unreachable {
        /// Inaccessible path: the cluster's directory or the server binary.
        path: PathBuf,
    },
    /// The path of a socket in the cluster's directory would be too long, and no private directory with a shorter path could be created.
    #[error(
        "the socket path in {} would be longer than the {limit} bytes that the system allows, and no private folder could be made \
         under {}; set QUEUE_PG_DATA to a shorter path", .folder.display(), list(.tried)
    )]
    SocketPath {
        /// Directory that contains the cluster.
        folder: PathBuf,
        /// Maximum length of a socket path in bytes.
        limit: usize,
        /// Parent directories in which no private directory could be created.
        tried: Vec<PathBuf>,
    },
    /// `initdb` failed.
    #[error("failed to create a database in {}: {output}", .folder.display())]
    Initdb {
        /// Intended directory of the cluster.
        folder: PathBuf,
        /// Last lines of `initdb`'s error output.
        output: String,
    },
    /// The server exited before it accepted connections.
    #[error("PostgreSQL exited during its start; last lines of {}:\n{tail}", .log.display())]
    Ended {
        /// Path of the server log.
        log: PathBuf,
        /// Last lines of the server log.
        tail: String,
    },
    /// The server did not accept connections within [`ready_within`](crate::EmbeddedOptions::ready_within).
    #[error(
        "PostgreSQL did not accept connections within {waited:?}; recovery after a crash may take longer: increase `ready_within`; \
         last lines of {}:\n{tail}", .log.display()
    )]
    NotReady {
        /// Time spent waiting for the server.
        waited: Duration,
        /// Path of the server log.
        log: PathBuf,
        /// Last lines of the server log.
        tail: String,
    },
    /// Another process was still starting or stopping the same server when the maximum waiting time had passed.
    #[error("another process has been starting or stopping the database in {} for {waited:?}; find it with `{find}`, end it and retry", .folder.display())]
    Busy {
        /// Directory that contains the cluster.
        folder: PathBuf,
        /// Time spent waiting for the other process.
        waited: Duration,
        /// Shell command that lists the other process.
        find: String,
    },
    /// A server that this crate did not start is using the cluster.
    #[error("the database in {} is in use by the server process {pid}, which queue-worker did not start; stop it, or set DATABASE_URL to it", .folder.display())]
    StartedElsewhere {
        /// Directory that contains the cluster.
        folder: PathBuf,
        /// Process id of the server.
        pid: u32,
    },
    /// The async runtime was shut down before the server had started.
    #[error("the async runtime was shut down during the start of PostgreSQL")]
    Cancelled,
    /// The operating system is not a Unix.
    #[error("an embedded PostgreSQL needs Linux, macOS or another Unix; set DATABASE_URL to a running server")]
    Unsupported,
    /// An operation on a file or program failed.
    #[error("cannot {doing} {}; if you have no access to the folder, set QUEUE_PG_DATA to another", .path.display())]
    Io {
        /// Failed operation as a verb phrase for the message, such as `create`.
        doing: &'static str,
        /// Path of the file or program.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
}

impl EmbeddedError {
    /// Returns a closure for `map_err` that adds the failed operation and its path.
    #[cfg(unix)]
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
