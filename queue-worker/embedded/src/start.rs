//! Joins a running server, or launches a server after all processes of an earlier server have exited.
//!
//! This module contains all waits for other processes. Only the process that holds `start.lock` starts or joins a server. The process
//! holds the lock until the start succeeds or fails.

use std::{
    fs::File,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Embedded, EmbeddedError, EmbeddedOptions,
    folder::{self, Folder, LockResult, is_file_at},
    launch::launch,
    running::{self, RunningServer, find_running},
    socket,
    users::{self, JoinResult},
};

/// Interval at which the state of other processes is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum time for other processes to stop a server, including its last checkpoint.
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
/// Time after which `supervise.sh`, the script that runs the server, is considered dead if no process reads the FIFO of the server's users.
const NO_READER_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) fn start(options: &EmbeddedOptions) -> Result<Embedded, EmbeddedError> {
    let (path, own) = folder::choose(options)?;
    let others = STOP_TIMEOUT + options.ready_within;
    let deadline = Instant::now() + others;
    loop {
        let folder = Folder::open(&path)?;
        match folder::try_lock(&folder.start_lock())? {
            // The lock is released when its file is closed.
            LockResult::Acquired(start) => {
                if let Some(embedded) = join_or_launch(&folder, &start, own.as_deref(), options, deadline)? {
                    return Ok(embedded);
                }
            }
            LockResult::Busy | LockResult::Removed => {}
        }
        wait(&folder, deadline, others)?;
    }
}

/// Joins the server or launches a new one. The caller holds `start.lock`, so only one process at a time runs this function. Returns
/// `None` if the folder was removed with an ephemeral server.
fn join_or_launch(
    folder: &Folder,
    start: &File,
    own: Option<&Path>,
    options: &EmbeddedOptions,
    deadline: Instant,
) -> Result<Option<Embedded>, EmbeddedError> {
    let mut place = None;
    let mut no_reader_since: Option<Instant> = None;
    loop {
        match folder::try_lock(&folder.alive_lock())? {
            // The folder belongs to an ephemeral server and is being removed. The cleanup removes `start.lock` first, so `alive.lock`
            // may still exist.
            LockResult::Acquired(_) if !is_file_at(start, &folder.start_lock()) => return Ok(None),
            LockResult::Acquired(alive) => return launch(folder, own, options, alive).map(Some),
            LockResult::Removed => return Ok(None),
            LockResult::Busy => {}
        }
        if place.is_none() {
            match users::join(folder)? {
                JoinResult::Joined(user) => place = Some(user),
                JoinResult::NotRunning => {}
                JoinResult::NoReader => {
                    let since = *no_reader_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > NO_READER_TIMEOUT
                        && let Some(RunningServer { pid, .. }) = find_running(folder)
                    {
                        tracing::warn!(pid, folder = %folder.path().display(), "no process watches the users of this server: restarting it");
                        running::request_stop(folder, pid);
                        no_reader_since = None;
                    }
                }
            }
        }
        match find_running(folder) {
            Some(RunningServer { socket, ready: true, .. }) if place.is_some() => {
                let user = place.take().expect("the match guard checked it");
                tracing::debug!(folder = %folder.path().display(), "joined the embedded server");
                return Ok(Some(Embedded { url: socket::url(&socket), folder: folder.path().to_owned(), attached: true, _user: user }));
            }
            _ => wait(folder, deadline, STOP_TIMEOUT + options.ready_within)?,
        }
    }
}

fn wait(folder: &Folder, deadline: Instant, waited: Duration) -> Result<(), EmbeddedError> {
    if Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
        return Ok(());
    }
    let find = format!("fuser -v {} {}", folder.start_lock().display(), folder.alive_lock().display());
    Err(EmbeddedError::Busy { folder: folder.path().to_owned(), waited, find })
}
