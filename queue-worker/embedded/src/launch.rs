//! Makes the cluster if need be, and starts the script that runs the server.
//!
//! As root, the folder belongs to a user that we do not trust with root's rights: it may have put anything there. So what
//! root creates here it creates anew, and all else is done as that user.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Embedded, EmbeddedError, EmbeddedOptions, find,
    folder::Folder,
    initdb::initdb,
    run_as::RunAs,
    running::{remove_stale_pid, running},
    settings, socket,
    users::{self, Entrance},
};

const SCRIPT: &str = include_str!("supervise.sh");
/// How often we look whether the server is ready.
const PAUSE: Duration = Duration::from_millis(2);
/// A log beyond this size is put aside before the next start.
const LOG_BYTES: u64 = 16 << 20;

/// Starts a server. `alive` is the lock that says that there is none, and from now on that there is one.
pub(crate) fn launch(folder: &Folder, own: Option<&Path>, options: &EmbeddedOptions, alive: File) -> Result<Embedded, EmbeddedError> {
    let began = Instant::now();
    let binaries = find::find(own, folder.version())?;
    let version = binaries.version;
    if let Some(data) = folder.version().filter(|&data| data != version) {
        return Err(EmbeddedError::WrongVersion { folder: folder.path().to_owned(), data, binaries: version });
    }
    let run_as = RunAs::choose(folder, &binaries)?;
    folder.give_to(&run_as)?;
    if folder.version().is_some() {
        remove_stale_pid(folder)?;
    } else {
        initdb(folder, &binaries, &run_as, options)?;
    }
    let socket = socket::choose(folder, &run_as)?;
    socket::remove_stale_lock(&socket);
    let user = users::open(folder, &run_as)?;
    let mut log = open_log(folder, &run_as)?;
    write_script(folder)?;
    let elsewhere = if socket == folder.path() { Path::new("") } else { &socket };
    let mut script = shell(&run_as);
    script.arg(folder.script()).arg(folder.path()).arg(elsewhere).arg(if options.ephemeral { "yes" } else { "no" });
    script.arg(binaries.bin.join("postgres")).arg("-D").arg(folder.data()).args(settings::arguments(options, &socket));
    // A group of its own, or Ctrl-C would stop the server before its users are done.
    script.stdin(alive).process_group(0);
    reap(script.spawn().map_err(EmbeddedError::io("run", Path::new("/bin/sh")))?);
    // It has our handle of the lock.
    drop(script);
    await_ready(folder, options, &mut log)?;
    let user = match users::join(folder)? {
        Entrance::Open(own) => own,
        // The script has just been killed; our own file keeps a place for the next one.
        Entrance::Closed | Entrance::Unwatched => user,
    };
    let took = began.elapsed();
    tracing::info!(folder = %folder.path().display(), version, ?run_as, ?took, "started the embedded server");
    Ok(Embedded { url: socket::url(&socket), folder: folder.path().to_owned(), attached: false, _user: user })
}

/// A shell without what our process had open: a lock or a pipe of the user's that went along would be held for as long as the
/// server lives. `sh` can only close what has one digit, which the script does; where there is a `bash`, it closes the rest.
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

/// Under another name first: a shell that still reads the old one must not see it change.
fn write_script(folder: &Folder) -> Result<(), EmbeddedError> {
    let (script, new) = (folder.script(), folder.script().with_extension("new"));
    let _ = fs::remove_file(&new);
    create(&new, 0o644)
        .and_then(|mut file| file.write_all(SCRIPT.as_bytes()))
        .and_then(|()| fs::rename(&new, &script))
        .map_err(EmbeddedError::io("write", &script))
}

/// The log, for reading what is said from now on. The script opens it for the server. One that has grown large is put aside.
fn open_log(folder: &Folder, run_as: &RunAs) -> Result<File, EmbeddedError> {
    let path = folder.log();
    if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_BYTES) {
        let _ = fs::rename(&path, path.with_extension("log.old"));
    }
    match create(&path, 0o600) {
        Ok(_) => run_as.own(&path)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(EmbeddedError::io("create", &path)(error)),
    }
    let mut log = File::open(&path).map_err(EmbeddedError::io("open", &path))?;
    log.seek(SeekFrom::End(0)).map_err(EmbeddedError::io("read", &path))?;
    Ok(log)
}

/// A file that was not there, nor a link to anywhere.
fn create(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// The last lines of what was written to the log since we opened it; it may have been removed since.
fn tail(log: &mut File) -> String {
    let mut text = Vec::new();
    let _ = log.read_to_end(&mut text);
    last_lines(&String::from_utf8_lossy(&text))
}

pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}
