//! Creates the cluster if there is none, and starts the script that runs the server.
//!
//! If this process runs as root, the folder belongs to a less privileged user, who may have created files or links in it. Root therefore
//! writes only to files that it has just created. All programs that work in the folder run as the less privileged user.

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
    running::{find_running, remove_stale_pid},
    settings, socket,
    users::{self, JoinResult},
};

const SCRIPT: &str = include_str!("supervise.sh");
/// Interval at which the server's state is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum size of the server log in bytes. A larger log is renamed at the next start.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// Starts a server. The `alive` lock proves that no server is running and is passed on to the new server.
pub(crate) fn launch(folder: &Folder, own: Option<&Path>, options: &EmbeddedOptions, alive: File) -> Result<Embedded, EmbeddedError> {
    let began = Instant::now();
    let binaries = find::find(own, folder.version())?;
    let version = binaries.version;
    if let Some(data) = folder.version().filter(|&data| data != version) {
        return Err(EmbeddedError::WrongVersion { folder: folder.path().to_owned(), data, binaries: version });
    }
    let run_as = RunAs::choose(folder, &binaries)?;
    folder.give_ownership_to(&run_as)?;
    if folder.version().is_some() {
        remove_stale_pid(folder)?;
    } else {
        initdb(folder, &binaries, &run_as, options)?;
    }
    let socket = socket::choose(folder, &run_as)?;
    socket::remove_stale_lock(&socket);
    let user = users::open_fifo(folder, &run_as)?;
    let mut log = open_log(folder, &run_as)?;
    write_script(folder)?;
    let elsewhere = if socket == folder.path() { Path::new("") } else { &socket };
    let mut script = shell(&run_as);
    script.arg(folder.script()).arg(folder.path()).arg(elsewhere).arg(if options.ephemeral { "yes" } else { "no" });
    script.arg(binaries.bin.join("postgres")).arg("-D").arg(folder.data()).args(settings::arguments(options, &socket));
    // Without a separate process group, Ctrl-C would stop the server while other processes still use it.
    script.stdin(alive).process_group(0);
    reap(script.spawn().map_err(EmbeddedError::io("run", Path::new("/bin/sh")))?);
    // Closes this process's handle to the lock. The script has a duplicate.
    drop(script);
    wait_until_ready(folder, options, &mut log)?;
    let user = match users::join(folder)? {
        JoinResult::Joined(own) => own,
        // The script was killed after the server had started. `user` keeps the FIFO in use until another process starts a new script.
        JoinResult::NotRunning | JoinResult::NoReader => user,
    };
    let took = began.elapsed();
    tracing::info!(folder = %folder.path().display(), version, ?run_as, ?took, "started the embedded server");
    Ok(Embedded { url: socket::url(&socket), folder: folder.path().to_owned(), attached: false, _user: user })
}

/// Returns the command for a shell that inherits as few open files of this process as possible. An inherited lock or pipe would stay open
/// while the server runs. The script can close only one-digit descriptors, because `sh` supports no others. If `bash` is installed, `bash`
/// closes all descriptors above 2 and then runs `sh`.
fn shell(run_as: &RunAs) -> Command {
    const CLOSE: &str = r#"for fd in /dev/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done; exec /bin/sh "$@""#;
    if !Path::new("/bin/bash").exists() {
        return run_as.command("/bin/sh");
    }
    let mut bash = run_as.command("/bin/bash");
    bash.args(["-c", CLOSE, "bash"]);
    bash
}

/// Waits for the script's process on a separate thread, so that the process does not remain a zombie after its exit.
fn reap(mut script: Child) {
    let _ = thread::Builder::new().name("queue-embedded".to_owned()).stack_size(64 << 10).spawn(move || script.wait());
}

fn wait_until_ready(folder: &Folder, options: &EmbeddedOptions, log: &mut File) -> Result<(), EmbeddedError> {
    let began = Instant::now();
    loop {
        // Reads `ended` before the server's state. If all processes have exited at that point, the state that is read afterwards can no
        // longer change.
        let ended = folder.has_ended();
        if find_running(folder).is_some_and(|running| running.ready) {
            return Ok(());
        }
        if ended {
            return Err(EmbeddedError::Ended { log: folder.log(), tail: read_tail(log) });
        }
        let waited = began.elapsed();
        if waited > options.ready_within {
            return Err(EmbeddedError::NotReady { waited, log: folder.log(), tail: read_tail(log) });
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Writes the script to a new file and renames the file. A shell that is still reading the old script must not see changes.
fn write_script(folder: &Folder) -> Result<(), EmbeddedError> {
    let (script, new) = (folder.script(), folder.script().with_extension("new"));
    let _ = fs::remove_file(&new);
    create_new_file(&new, 0o644)
        .and_then(|mut file| file.write_all(SCRIPT.as_bytes()))
        .and_then(|()| fs::rename(&new, &script))
        .map_err(EmbeddedError::io("write", &script))
}

/// Opens the log and seeks to its end, so that later reads return only new lines. The script opens the log separately for the server. A
/// log that is too large is first renamed.
fn open_log(folder: &Folder, run_as: &RunAs) -> Result<File, EmbeddedError> {
    let path = folder.log();
    if fs::metadata(&path).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
        let _ = fs::rename(&path, path.with_extension("log.old"));
    }
    match create_new_file(&path, 0o600) {
        Ok(_) => run_as.chown(&path)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(EmbeddedError::io("create", &path)(error)),
    }
    let mut log = File::open(&path).map_err(EmbeddedError::io("open", &path))?;
    log.seek(SeekFrom::End(0)).map_err(EmbeddedError::io("read", &path))?;
    Ok(log)
}

/// Creates a file. Fails if the path already exists, even as a symbolic link.
fn create_new_file(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Returns the last lines written to the log since it was opened. Works even if the file has since been removed.
fn read_tail(log: &mut File) -> String {
    let mut text = Vec::new();
    let _ = log.read_to_end(&mut text);
    last_lines(&String::from_utf8_lossy(&text))
}

pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}
