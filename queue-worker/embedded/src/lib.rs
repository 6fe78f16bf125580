//! A real `PostgreSQL` without an installation step: starts the machine's own server binaries on a private cluster and stops
//! them when nobody needs them any more.
//!
//! Several processes share one server. Each holds a FIFO open; a small shell script, `supervise.sh`, runs the server and
//! reads that FIFO. The last user gone, by `kill -9` too, is its end of file: it stops the server and ends. So nothing of
//! ours stays behind, and nothing has to be cleaned up by a user that can no longer do so.
//!
//! This crate opens no database connection, and downloads nothing. `DATABASE_URL` is its caller's business.

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

/// How to start an embedded server; `EmbeddedOptions::default()` suits a program, `EmbeddedOptions::temporary()` a test.
///
/// A server that is already running keeps the options it was started with.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Where cluster, log and socket live. Default: `$QUEUE_PG_DATA`, else a folder for each major version of `PostgreSQL` under
    /// `$XDG_DATA_HOME/queue-worker`, `~/.local/share/queue-worker` (macOS: `~/Library/Application Support/queue-worker`),
    /// or as root `/var/lib/queue-worker`.
    pub folder: Option<PathBuf>,
    /// Further server settings, such as `("max_connections", "50")`; they win over ours.
    pub settings: Vec<(String, String)>,
    /// Whether committed work survives a crash of the machine (fsync). Default: true.
    pub durable: bool,
    /// Whether the whole folder is removed once the last user has gone. Default: false.
    /// As root, put such a folder where everybody may write, as the system's temporary folder: elsewhere it is left empty.
    pub ephemeral: bool,
    /// How long a server may take to accept connections, crash recovery included. Default: 30 s.
    pub ready_within: Duration,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self { folder: None, settings: Vec::new(), durable: true, ephemeral: false, ready_within: Duration::from_secs(30) }
    }
}

impl EmbeddedOptions {
    /// A server of one's own in a new folder under the system's temporary one: not durable, gone with its last user.
    pub fn temporary() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let folder = std::env::temp_dir().join(format!("queue-{}-{now:x}", std::process::id()));
        Self { folder: Some(folder), durable: false, ephemeral: true, ..Self::default() }
    }
}

/// One use of an embedded server, which lives at least as long as this value. Dropping the last one stops the server.
///
/// ```no_run
/// # use queue_embedded::{Embedded, EmbeddedOptions, EmbeddedError};
/// let server = Embedded::start(EmbeddedOptions::default())?;
/// println!("psql '{}'", server.url());
/// # Ok::<(), EmbeddedError>(())
/// ```
#[derive(Debug)]
#[must_use = "the server is stopped when its last user is dropped"]
pub struct Embedded {
    url: String,
    folder: PathBuf,
    attached: bool,
    /// Our end of the FIFO; closing it, in whatever way, is all that a user has to do to leave.
    _user: File,
}

impl Embedded {
    /// Starts the server of a folder, or joins it when it is running, and returns once it accepts connections.
    /// Blocks the thread: a few milliseconds when it runs already, up to `ready_within` otherwise.
    #[cfg(unix)]
    #[expect(clippy::needless_pass_by_value, reason = "options are made for one start")]
    pub fn start(options: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        start::start(&options)
    }

    /// Refuses: an embedded server needs Unix.
    #[cfg(not(unix))]
    pub fn start(_: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        Err(EmbeddedError::Unsupported)
    }

    /// The server's URL: its Unix socket, user `postgres`, database `postgres`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The folder with the cluster (`data`), its log (`postgres.log`) and, if the path is short enough, its socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the server was running already.
    pub fn attached(&self) -> bool {
        self.attached
    }
}

/// [`Embedded::start`] for async callers: does the waiting on a thread for blocking work.
pub async fn start(options: EmbeddedOptions) -> Result<Embedded, EmbeddedError> {
    match tokio::task::spawn_blocking(move || Embedded::start(options)).await {
        Ok(started) => started,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(EmbeddedError::Cancelled),
        },
    }
}
