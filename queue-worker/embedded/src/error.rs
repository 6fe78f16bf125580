//! What can keep an embedded server from starting, a variant for each thing that a caller does differently.

use std::{io, path::Path, path::PathBuf, time::Duration};

/// Why there is no embedded server; every text says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// No server binaries anywhere.
    #[error(
        "no PostgreSQL server found (looked in {}); {install}, or set QUEUE_PG_BIN to the folder of its `initdb` and `postgres`, \
         or set DATABASE_URL to a server that runs already",
        list(.looked)
    )]
    NoServer {
        /// The folders that were looked at.
        looked: Vec<PathBuf>,
        /// What to run on this system.
        install: String,
    },
    /// Only binaries that we do not support.
    #[error("PostgreSQL {version} in {} is too old, 15 or later is needed; {install}, or set QUEUE_PG_BIN or DATABASE_URL", .bin.display())]
    TooOld {
        /// Where the newest of them are.
        bin: PathBuf,
        /// Their major version.
        version: u32,
        /// What to run on this system.
        install: String,
    },
    /// The binaries that were asked for do not work.
    #[error("no working PostgreSQL server in {} ({reason}); set QUEUE_PG_BIN to a folder with `initdb` and `postgres`", .bin.display())]
    BadBinaries {
        /// Where they should be.
        bin: PathBuf,
        /// What is wrong with them.
        reason: String,
    },
    /// Nothing says where data belongs.
    #[error("none of QUEUE_PG_DATA, XDG_DATA_HOME and HOME is set; set QUEUE_PG_DATA to a folder for the database")]
    NoHome,
    /// The cluster was made by another major version.
    #[error(
        "the database in {} was made by PostgreSQL {data}, but only {binaries} is here; install PostgreSQL {data}, or set QUEUE_PG_BIN \
         to its binaries, or QUEUE_PG_DATA to another folder (`pg_upgrade` moves the data)", .folder.display()
    )]
    WrongVersion {
        /// The cluster's folder.
        folder: PathBuf,
        /// The version that made it.
        data: u32,
        /// The version at hand.
        binaries: u32,
    },
    /// The folder holds something else, which must not be taken over.
    #[error("{} has files but no database of ours; name an empty or new folder (QUEUE_PG_DATA)", .folder.display())]
    ForeignFolder {
        /// That folder.
        folder: PathBuf,
    },
    /// The cluster belongs to another user.
    #[error("the database in {} belongs to user id {owner}; run as that user, or set QUEUE_PG_DATA to a folder of your own", .folder.display())]
    OtherOwner {
        /// The cluster's folder.
        folder: PathBuf,
        /// Who owns it.
        owner: u32,
    },
    /// `PostgreSQL` refuses to run as root, and nobody else can get at the files.
    #[error(
        "running as root, which PostgreSQL refuses, and no other user can reach {}, nor are user namespaces allowed here; set QUEUE_PG_DATA \
         to a folder whose parents all have mode o+x, such as /var/lib/queue-worker, or run as another user", .path.display()
    )]
    Unreachable {
        /// What cannot be reached: the cluster's folder or the binaries.
        path: PathBuf,
    },
    /// The folder's path is too long for a socket, and no shorter place will do.
    #[error(
        "the socket path in {} would be longer than the {limit} bytes that the system allows, and no private folder could be made \
         under {}; set QUEUE_PG_DATA to a shorter path", .folder.display(), list(.tried)
    )]
    SocketPath {
        /// The cluster's folder.
        folder: PathBuf,
        /// The limit in bytes.
        limit: usize,
        /// Where a short folder was tried.
        tried: Vec<PathBuf>,
    },
    /// `initdb` failed.
    #[error("could not make a database in {}: {output}", .folder.display())]
    Initdb {
        /// The cluster's folder.
        folder: PathBuf,
        /// The last lines of what it said.
        output: String,
    },
    /// The server ended instead of accepting connections.
    #[error("PostgreSQL ended while it was starting; the last lines of {} are:\n{tail}", .log.display())]
    Ended {
        /// The server's log.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// The server takes too long.
    #[error(
        "PostgreSQL did not accept connections within {waited:?}; after a crash it may need longer: raise `ready_within`; \
         the last lines of {} are:\n{tail}", .log.display()
    )]
    NotReady {
        /// How long we waited.
        waited: Duration,
        /// The server's log.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// Somebody else is starting or stopping the same server, for too long.
    #[error("another process has been starting or stopping the database in {} for {waited:?}; `{find}` names it, end it and try again", .folder.display())]
    Busy {
        /// The cluster's folder.
        folder: PathBuf,
        /// How long we waited.
        waited: Duration,
        /// A command that names the process.
        find: String,
    },
    /// Somebody started a server on the folder by hand.
    #[error("the database in {} is already run by process {pid}, which we did not start; stop it, or set DATABASE_URL to it", .folder.display())]
    StartedElsewhere {
        /// The cluster's folder.
        folder: PathBuf,
        /// The server.
        pid: u32,
    },
    /// The async runtime ended before the server was started.
    #[error("the runtime was shut down while PostgreSQL was being started")]
    Cancelled,
    /// Not Unix.
    #[error("an embedded PostgreSQL needs Linux, macOS or another Unix; set DATABASE_URL to a server that runs already")]
    Unsupported,
    /// A file or a program failed us.
    #[error("cannot {doing} {}; if the folder is not yours to use, set QUEUE_PG_DATA to another", .path.display())]
    Io {
        /// The verb.
        doing: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl EmbeddedError {
    /// For `map_err`: says what was being done to which path.
    #[cfg(unix)]
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
