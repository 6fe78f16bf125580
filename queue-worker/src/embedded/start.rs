//! Joins the server that runs, or starts one when nothing of an earlier one is left.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    Embedded, EmbeddedError, EmbeddedOptions, find,
    folder::{self, Folder, Lock, is_at},
    initdb::initdb,
    run_as::RunAs,
    running::{self, Running, running},
    settings, socket,
    users::{self, Entrance},
};

/// How often we look whether somebody else is done.
const PAUSE: Duration = Duration::from_millis(2);
/// How long others may take to start or stop the server: crash recovery and the last checkpoint of a busy one.
const OTHERS: Duration = Duration::from_mins(1);
/// How long a server may listen without its script reading the FIFO before we take the script for dead.
const UNWATCHED: Duration = Duration::from_millis(500);
const SCRIPT: &str = include_str!("supervise.sh");
/// A log beyond this size is put aside before the next start.
const LOG_BYTES: u64 = 16 << 20;

pub(super) fn start(options: &EmbeddedOptions) -> Result<Embedded, EmbeddedError> {
    let (path, own) = folder::choose(options)?;
    let others = OTHERS + options.ready_within;
    let deadline = Instant::now() + others;
    loop {
        let folder = Folder::open(&path)?;
        match folder::try_lock(&folder.start_lock())? {
            // It is released when the file is closed.
            Lock::Held(start) => {
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
            Lock::Held(_) if !is_at(start, &folder.start_lock()) => return Ok(None),
            Lock::Held(alive) => return launch(folder, own, options, alive).map(Some),
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
                        && let Some(Running { pid, .. }) = running(folder)
                    {
                        tracing::warn!(pid, folder = %folder.path().display(), "nobody watches this server's users: restarting it");
                        running::stop(pid);
                        unwatched = None;
                    }
                }
            }
        }
        match running(folder) {
            Some(Running { socket, ready: true, .. }) if place.is_some() => {
                let user = place.take().expect("just looked");
                tracing::debug!(folder = %folder.path().display(), "joined the embedded server");
                return Ok(Some(Embedded { url: socket::url(&socket), folder: folder.path().to_owned(), attached: true, _user: user }));
            }
            _ => wait(folder, deadline, OTHERS + options.ready_within)?,
        }
    }
}

/// Starts a server. `alive` is the lock that says that there is none, and from now on that there is one.
fn launch(folder: &Folder, own: Option<&Path>, options: &EmbeddedOptions, alive: File) -> Result<Embedded, EmbeddedError> {
    let began = Instant::now();
    let binaries = find::find(own, folder.version())?;
    let run_as = RunAs::choose(folder, &binaries)?;
    folder.give_to(&run_as)?;
    match folder.version() {
        Some(data) if data != binaries.version => {
            return Err(EmbeddedError::WrongVersion { folder: folder.path().to_owned(), data, binaries: binaries.version });
        }
        Some(_) => running::remove_stale_pid(folder)?,
        None => initdb(folder, &binaries, &run_as, options)?,
    }
    let socket = socket::choose(folder, &run_as)?;
    let user = users::open(folder, &run_as)?;
    let (written, mut log) = open_log(folder, &run_as)?;
    let elsewhere = if socket == folder.path() { Path::new("") } else { &socket };
    fs::write(folder.script(), SCRIPT).map_err(EmbeddedError::io("write", &folder.script()))?;
    let mut supervise = shell(&run_as);
    supervise.arg(folder.script()).arg(folder.path()).arg(elsewhere).arg(if options.ephemeral { "yes" } else { "no" });
    supervise.arg(binaries.bin.join("postgres")).arg("-D").arg(folder.data()).args(settings::arguments(options, &socket));
    let duplicate = || written.try_clone().map(Stdio::from).map_err(EmbeddedError::io("open", &folder.log()));
    // A group of its own, or Ctrl-C would stop the server before its users are done.
    supervise.stdin(alive).stdout(duplicate()?).stderr(duplicate()?).process_group(0);
    reap(supervise.spawn().map_err(EmbeddedError::io("run", Path::new("/bin/sh")))?);
    // It has our handle of the lock.
    drop(supervise);
    await_ready(folder, options, &mut log)?;
    let user = match users::join(folder)? {
        Entrance::Open(own) => own,
        // The script has just been killed; our own file keeps a place for the next one.
        Entrance::Closed | Entrance::Unwatched => user,
    };
    let (version, took) = (binaries.version, began.elapsed());
    tracing::info!(folder = %folder.path().display(), version, ?run_as, ?took, "started the embedded server");
    Ok(Embedded { url: socket::url(&socket), folder: folder.path().to_owned(), attached: false, _user: user })
}

/// A shell without what our process had open: a lock or a pipe of the user's that went along would be held for as long as the
/// server lives. `sh` can only close what has one digit; where there is a `bash`, it closes the rest.
fn shell(run_as: &RunAs) -> Command {
    const CLOSE: &str = r#"for fd in /dev/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done; exec /bin/sh "$@""#;
    if !Path::new("/bin/bash").exists() {
        return run_as.command("/bin/sh");
    }
    let mut bash = run_as.command("/bin/bash");
    bash.args(["-c", CLOSE, "bash"]);
    bash
}

/// The script is our child: as long as we live, nobody else would take note of its end.
fn reap(mut script: Child) {
    let _ = thread::Builder::new().name("queue-embedded".to_owned()).stack_size(64 << 10).spawn(move || script.wait());
}

fn await_ready(folder: &Folder, options: &EmbeddedOptions, log: &mut File) -> Result<(), EmbeddedError> {
    let began = Instant::now();
    loop {
        // Looked at first: a server that is ready was so after this.
        let ended = folder.ended();
        if running(folder).is_some_and(|running| running.ready) {
            return Ok(());
        }
        if ended {
            return Err(EmbeddedError::Ended { log: folder.log(), tail: tail(log) });
        }
        let waited = began.elapsed();
        if waited > options.ready_within {
            return Err(EmbeddedError::NotReady { waited, log: folder.log(), tail: tail(log) });
        }
        thread::sleep(PAUSE);
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

/// The log twice: for the server, and for reading what it says from now on. One that has grown large is put aside.
fn open_log(folder: &Folder, run_as: &RunAs) -> Result<(File, File), EmbeddedError> {
    let path = folder.log();
    if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_BYTES) {
        let _ = fs::rename(&path, path.with_extension("log.old"));
    }
    let written = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(EmbeddedError::io("open", &path))?;
    run_as.own(&path)?;
    let mut read = File::open(&path).map_err(EmbeddedError::io("open", &path))?;
    read.seek(SeekFrom::End(0)).map_err(EmbeddedError::io("read", &path))?;
    Ok((written, read))
}

/// The last lines of what was written to the log since we opened it; it may have been removed since.
fn tail(log: &mut File) -> String {
    let mut text = Vec::new();
    let _ = log.read_to_end(&mut text);
    last_lines(&String::from_utf8_lossy(&text))
}

pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}
