//! Runs an embedded `PostgreSQL` server that requires no setup. The server uses the binaries installed on this machine and a private
//! cluster. The server stops when the last process that uses it exits.
//!
//! Several processes can share one server. Each process is a user of the server and holds a FIFO open for writing. A small shell script,
//! `supervise.sh`, runs the server and reads the FIFO. When the last user has exited, even after `kill -9`, the script reads end of file,
//! stops the server and exits. No server process remains, and a killed user requires no cleanup.
//!
//! This crate opens no database connection, downloads nothing, and does not read `DATABASE_URL`.

mod error;
#[cfg(unix)]
mod find;
#[cfg(unix)]
mod folder;
#[cfg(unix)]
mod initdb;
#[cfg(unix)]
mod install;
#[cfg(unix)]
mod launch;
#[cfg(unix)]
mod run_as;
#[cfg(unix)]
mod running;
#[cfg(unix)]
mod settings;
#[cfg(unix)]
mod socket;
#[cfg(unix)]
mod start;
#[cfg(unix)]
mod users;

pub use error::EmbeddedError;

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Options of an embedded server. Programs use `EmbeddedOptions::default()`, and tests use `EmbeddedOptions::temporary()`.
///
/// A server that is already running keeps the options with which it was started.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Folder of the cluster, the log and the socket. Default: `$QUEUE_PG_DATA`. If this variable is not set, the default is a separate
    /// folder for each major version of `PostgreSQL` below one of these folders:
    ///
    /// - `$XDG_DATA_HOME/queue-worker`, if `XDG_DATA_HOME` is set
    /// - `/var/lib/queue-worker`, if the process runs as root (macOS: `/usr/local/var/queue-worker`)
    /// - `~/.local/share/queue-worker` otherwise (macOS: `~/Library/Application Support/queue-worker`)
    pub folder: Option<PathBuf>,
    /// Additional server settings, such as `("max_connections", "50")`. These settings override the built-in ones.
    pub settings: Vec<(String, String)>,
    /// Whether committed transactions survive a crash of the machine (`fsync`). Default: true.
    pub durable: bool,
    /// Whether the folder is removed when the last user exits. Default: false. If the process runs as root, choose a folder inside a
    /// world-writable parent, such as the system's temporary folder. With any other parent, only the folder's content is removed.
    pub ephemeral: bool,
    /// Maximum time until the server accepts connections, including crash recovery. Default: 30 s.
    pub ready_within: Duration,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self { folder: None, settings: Vec::new(), durable: true, ephemeral: false, ready_within: Duration::from_secs(30) }
    }
}

impl EmbeddedOptions {
    /// Returns the options of a private server in a new folder under the system's temporary folder. The server is not durable. Its folder
    /// is removed when the last user exits.
    pub fn temporary() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let folder = std::env::temp_dir().join(format!("queue-{}-{now:x}", std::process::id()));
        Self { folder: Some(folder), durable: false, ephemeral: true, ..Self::default() }
    }
}

/// Handle to an embedded server. The server stops when its last handle is dropped.
///
/// ```no_run
/// # use queue_embedded::{Embedded, EmbeddedOptions, EmbeddedError};
/// let server = Embedded::start(EmbeddedOptions::default())?;
/// println!("psql '{}'", server.url());
/// # Ok::<(), EmbeddedError>(())
/// ```
#[derive(Debug)]
#[must_use = "the server stops when its last user is dropped"]
pub struct Embedded {
    url: String,
    folder: PathBuf,
    attached: bool,
    /// Write end of the FIFO. Dropping the file or exiting the process closes the FIFO and releases the server.
    _user: File,
}

impl Embedded {
    /// Starts the folder's server, or joins a running server, and returns once the server accepts connections. Blocks the thread for a
    /// few milliseconds if the server is running. Otherwise blocks for up to `ready_within`, or longer if another process is starting or
    /// stopping the server.
    #[cfg(unix)]
    #[expect(clippy::needless_pass_by_value, reason = "options are created for one start")]
    pub fn start(options: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        start::start(&options)
    }

    /// Returns [`EmbeddedError::Unsupported`], because an embedded server needs Unix.
    #[cfg(not(unix))]
    pub fn start(_: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        Err(EmbeddedError::Unsupported)
    }

    /// Returns the server's URL. The URL names the Unix socket, user `postgres` and database `postgres`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the folder with the cluster (`data`), its log (`postgres.log`) and, if the path is short enough, its socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether this handle joined a server that was already running.
    pub fn attached(&self) -> bool {
        self.attached
    }
}

/// Async version of [`Embedded::start`]. Starts the server on Tokio's blocking thread pool.
pub async fn start(options: EmbeddedOptions) -> Result<Embedded, EmbeddedError> {
    match tokio::task::spawn_blocking(move || Embedded::start(options)).await {
        Ok(started) => started,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(EmbeddedError::Cancelled),
        },
    }
}
