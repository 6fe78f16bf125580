//! Runs a real `PostgreSQL` without an installation step: starts the server binaries of the machine on a private cluster, and stops the
//! server with its last user.
//!
//! Several processes share one server. Each holds a FIFO open. A small shell script, `supervise.sh`, runs the server and reads that FIFO.
//! When the last user has exited, even by `kill -9`, the script reads end of file, stops the server and exits. So no process is left
//! behind, and a user that was killed has nothing to clean up.
//!
//! This crate opens no database connection and downloads nothing. Reading `DATABASE_URL` is up to its caller.

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

/// Options of an embedded server: `EmbeddedOptions::default()` for programs, `EmbeddedOptions::temporary()` for tests.
///
/// A server that is already running keeps the options it was started with.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Folder of the cluster, the log and the socket. Default: `$QUEUE_PG_DATA`, else a folder for each major version of `PostgreSQL` under
    /// `$XDG_DATA_HOME/queue-worker`, `~/.local/share/queue-worker` (macOS: `~/Library/Application Support/queue-worker`), or as root
    /// `/var/lib/queue-worker`.
    pub folder: Option<PathBuf>,
    /// Additional server settings, such as `("max_connections", "50")`. They override the built-in ones.
    pub settings: Vec<(String, String)>,
    /// Whether committed work survives a crash of the machine (fsync). Default: true.
    pub durable: bool,
    /// Whether the folder is removed when the last user has left. Default: false. As root, put such a folder into a world-writable one,
    /// such as the system's temporary folder. Elsewhere its content is removed, but the empty folder stays.
    pub ephemeral: bool,
    /// Maximum time until the server accepts connections, crash recovery included. Default: 30 s.
    pub ready_within: Duration,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self { folder: None, settings: Vec::new(), durable: true, ephemeral: false, ready_within: Duration::from_secs(30) }
    }
}

impl EmbeddedOptions {
    /// Returns the options of a private server in a new folder under the system's temporary one. The server is not durable, and its folder
    /// is removed with its last user.
    pub fn temporary() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let folder = std::env::temp_dir().join(format!("queue-{}-{now:x}", std::process::id()));
        Self { folder: Some(folder), durable: false, ephemeral: true, ..Self::default() }
    }
}

/// A use of an embedded server, which runs at least as long as this value exists. The server stops when its last use is dropped.
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
    /// This user's end of the FIFO. A user leaves by closing it, explicitly or by exiting.
    _user: File,
}

impl Embedded {
    /// Starts the server of a folder, or joins a running one, and returns once it accepts connections. Blocks the thread: a few
    /// milliseconds if the server is running, otherwise up to `ready_within`.
    #[cfg(unix)]
    #[expect(clippy::needless_pass_by_value, reason = "options are created for one start")]
    pub fn start(options: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        start::start(&options)
    }

    /// Returns an error: an embedded server needs Unix.
    #[cfg(not(unix))]
    pub fn start(_: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        Err(EmbeddedError::Unsupported)
    }

    /// Returns the server's URL: its Unix socket, user `postgres`, database `postgres`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the folder with the cluster (`data`), its log (`postgres.log`) and, if the path is short enough, its socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the server was already running.
    pub fn attached(&self) -> bool {
        self.attached
    }
}

/// Async version of [`Embedded::start`]: waits on a thread for blocking work.
pub async fn start(options: EmbeddedOptions) -> Result<Embedded, EmbeddedError> {
    match tokio::task::spawn_blocking(move || Embedded::start(options)).await {
        Ok(started) => started,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(EmbeddedError::Cancelled),
        },
    }
}
