//! Joins the server that runs, or has one launched when nothing of an earlier one is left.
//!
//! All waiting for other processes is here. Whoever gets past `start.lock` is alone, until it has a server or an error.

use std::{
    fs::File,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Embedded, EmbeddedError, EmbeddedOptions,
    folder::{self, Folder, Lock, is_at},
    launch::launch,
    running::{self, RunningServer, running},
    socket,
    users::{self, Entrance},
};

/// How often we look whether somebody else is done.
const PAUSE: Duration = Duration::from_millis(2);
/// How long others may take to stop a server: the last checkpoint of a busy one.
const STOPPING: Duration = Duration::from_mins(1);
/// How long a server may listen without anybody reading the FIFO before we take its script for dead.
const UNWATCHED: Duration = Duration::from_millis(500);

pub(crate) fn start(options: &EmbeddedOptions) -> Result<Embedded, EmbeddedError> {
    let (path, own) = folder::choose(options)?;
    let others = STOPPING + options.ready_within;
    let deadline = Instant::now() + others;
    loop {
        let folder = Folder::open(&path)?;
        match folder::try_lock(&folder.start_lock())? {
            // It is released when the file is closed.
            Lock::Ours(start) => {
                if let Some(embedded) = join_or_launch(&folder, &start, own.as_deref(), options, deadline)? {
                    return Ok(embedded);
                }
            }
            Lock::Taken | Lock::Gone => {}
        }
        wait(&folder, deadline, others)?;
    }
}

/// One starter at a time gets here. `None` if the folder was removed by the end of an ephemeral server.
fn join_or_launch(
    folder: &Folder,
    start: &File,
    own: Option<&Path>,
    options: &EmbeddedOptions,
    deadline: Instant,
) -> Result<Option<Embedded>, EmbeddedError> {
    let mut place = None;
    let mut unwatched: Option<Instant> = None;
    loop {
        match folder::try_lock(&folder.alive_lock())? {
            // The end of an ephemeral server removes first this lock, then the other.
            Lock::Ours(_) if !is_at(start, &folder.start_lock()) => return Ok(None),
            Lock::Ours(alive) => return launch(folder, own, options, alive).map(Some),
            Lock::Gone => return Ok(None),
            Lock::Taken => {}
        }
        if place.is_none() {
            match users::join(folder)? {
                Entrance::Open(user) => place = Some(user),
                Entrance::Closed => {}
                Entrance::Unwatched => {
                    let since = *unwatched.get_or_insert_with(Instant::now);
                    if since.elapsed() > UNWATCHED
                        && let Some(RunningServer { pid, .. }) = running(folder)
                    {
                        tracing::warn!(pid, folder = %folder.path().display(), "nobody watches this server's users: restarting it");
                        running::stop(folder, pid);
                        unwatched = None;
                    }
                }
            }
        }
        match running(folder) {
            Some(RunningServer { socket, ready: true, .. }) if place.is_some() => {
                let user = place.take().expect("just looked");
                tracing::debug!(folder = %folder.path().display(), "joined the embedded server");
                return Ok(Some(Embedded { url: socket::url(&socket), folder: folder.path().to_owned(), attached: true, _user: user }));
            }
            _ => wait(folder, deadline, STOPPING + options.ready_within)?,
        }
    }
}

fn wait(folder: &Folder, deadline: Instant, waited: Duration) -> Result<(), EmbeddedError> {
    if Instant::now() < deadline {
        thread::sleep(PAUSE);
        return Ok(());
    }
    let find = format!("fuser -v {} {}", folder.start_lock().display(), folder.alive_lock().display());
    Err(EmbeddedError::Busy { folder: folder.path().to_owned(), waited, find })
}
