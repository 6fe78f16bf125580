//! Reasons why an embedded server cannot start: one variant for each distinct reaction of the caller.

use std::{io, path::Path, path::PathBuf, time::Duration};

/// Error of [`Embedded::start`](crate::Embedded::start). Each message contains a fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// No server binaries were found.
    #[error(
        "no PostgreSQL server found in {}; {install}, or set QUEUE_PG_BIN to the folder of its `initdb` and `postgres`, \
         or set DATABASE_URL to a running server",
        list(.looked)
    )]
    NoServer {
        /// Searched folders.
        looked: Vec<PathBuf>,
        /// Instruction for installing a server on this system.
        install: String,
    },
    /// The only binaries found have an unsupported version.
    #[error("PostgreSQL {version} in {} is too old, 15 or later is required; {install}, or set QUEUE_PG_BIN or DATABASE_URL", .bin.display())]
    TooOld {
        /// Folder of the first of them.
        bin: PathBuf,
        /// Their major version.
        version: u32,
        /// Instruction for installing a server on this system.
        install: String,
    },
    /// The binaries at `QUEUE_PG_BIN` do not work.
    #[error("no working PostgreSQL server in {} ({reason}); set QUEUE_PG_BIN to a folder with `initdb` and `postgres`", .bin.display())]
    BadBinaries {
        /// Folder in which they were expected.
        bin: PathBuf,
        /// What is wrong with them.
        reason: String,
    },
    /// No environment variable defines a folder for data.
    #[error("none of QUEUE_PG_DATA, XDG_DATA_HOME and HOME is set; set QUEUE_PG_DATA to a folder for the database")]
    NoHome,
    /// The cluster was created by another major version.
    #[error(
        "the database in {} was created by PostgreSQL {data}, but only {binaries} is installed; install PostgreSQL {data}, or set QUEUE_PG_BIN \
         to its binaries, or QUEUE_PG_DATA to another folder (`pg_upgrade` moves the data)", .folder.display()
    )]
    WrongVersion {
        /// Folder of the cluster.
        folder: PathBuf,
        /// Major version that created the cluster.
        data: u32,
        /// Major version of the binaries.
        binaries: u32,
    },
    /// The folder contains foreign files and must not be taken over.
    #[error("{} contains files, but no database of queue-worker; set QUEUE_PG_DATA to an empty or new folder", .folder.display())]
    ForeignFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// The cluster belongs to another user.
    #[error("the database in {} belongs to user id {owner}; run as that user, or set QUEUE_PG_DATA to another folder", .folder.display())]
    OtherOwner {
        /// Folder of the cluster.
        folder: PathBuf,
        /// User id of the owner.
        owner: u32,
    },
    /// `PostgreSQL` refuses to run as root, and no other user can access the files.
    #[error(
        "PostgreSQL refuses to run as root, no other user can access {}, and user namespaces are not allowed; set QUEUE_PG_DATA \
         to a folder whose parents all have mode o+x, such as /var/lib/queue-worker, or run as another user", .path.display()
    )]
    Unreachable {
        /// Inaccessible path: the cluster's folder or the binaries.
        path: PathBuf,
    },
    /// The folder's path is too long for a socket, and no shorter private folder could be created.
    #[error(
        "the socket path in {} would be longer than the {limit} bytes that the system allows, and no private folder could be made \
         under {}; set QUEUE_PG_DATA to a shorter path", .folder.display(), list(.tried)
    )]
    SocketPath {
        /// Folder of the cluster.
        folder: PathBuf,
        /// Maximum length of a socket's path in bytes.
        limit: usize,
        /// Folders in which a shorter one was tried.
        tried: Vec<PathBuf>,
    },
    /// `initdb` failed.
    #[error("failed to create a database in {}: {output}", .folder.display())]
    Initdb {
        /// Folder of the cluster.
        folder: PathBuf,
        /// Last lines of its output.
        output: String,
    },
    /// The server exited before it accepted connections.
    #[error("PostgreSQL exited during its start; last lines of {}:\n{tail}", .log.display())]
    Ended {
        /// Log of the server.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// The server did not accept connections in time.
    #[error(
        "PostgreSQL did not accept connections within {waited:?}; recovery after a crash may take longer: increase `ready_within`; \
         last lines of {}:\n{tail}", .log.display()
    )]
    NotReady {
        /// Time waited.
        waited: Duration,
        /// Log of the server.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// Another process has been starting or stopping the same server for too long.
    #[error("another process has been starting or stopping the database in {} for {waited:?}; find it with `{find}`, end it and retry", .folder.display())]
    Busy {
        /// Folder of the cluster.
        folder: PathBuf,
        /// Time waited.
        waited: Duration,
        /// Command that shows the process.
        find: String,
    },
    /// A server that this crate did not start is running on the folder.
    #[error("the database in {} is in use by the server process {pid}, which queue-worker did not start; stop it, or set DATABASE_URL to it", .folder.display())]
    StartedElsewhere {
        /// Folder of the cluster.
        folder: PathBuf,
        /// Process id of the server.
        pid: u32,
    },
    /// The async runtime was shut down before the server had started.
    #[error("the async runtime was shut down during the start of PostgreSQL")]
    Cancelled,
    /// The system is not a Unix.
    #[error("an embedded PostgreSQL needs Linux, macOS or another Unix; set DATABASE_URL to a running server")]
    Unsupported,
    /// An operation on a file or program failed.
    #[error("cannot {doing} {}; if you have no access to the folder, set QUEUE_PG_DATA to another", .path.display())]
    Io {
        /// The operation, as a verb.
        doing: &'static str,
        /// The file or program.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
}

impl EmbeddedError {
    /// Returns a closure for `map_err` that adds the operation and its path.
    #[cfg(unix)]
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
