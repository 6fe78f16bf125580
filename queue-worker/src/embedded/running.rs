//! What the server says about itself in `postmaster.pid`, believed only if its socket answers.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{EmbeddedError, folder::Folder, socket};

/// A server that listens on its socket.
pub(super) struct Running {
    pub(super) pid: u32,
    /// The folder of its socket.
    pub(super) socket: PathBuf,
    /// Whether it accepts connections yet, and still.
    pub(super) ready: bool,
}

/// The server of a folder, if one listens.
pub(super) fn running(folder: &Folder) -> Option<Running> {
    let text = fs::read(folder.postmaster_pid()).ok()?;
    let running = parse(&String::from_utf8_lossy(&text))?;
    UnixStream::connect(socket::file(&running.socket)).ok().map(|_| running)
}

/// Reads the lines after the second from the end, because the second is a path that may hold line breaks.
fn parse(text: &str) -> Option<Running> {
    let pid = text.lines().next()?.trim().parse().ok()?;
    let [socket, _listen, _memory, state] =
        text.lines().rev().take(4).collect::<Vec<_>>().try_into().map(|[d, c, b, a]: [&str; 4]| [a, b, c, d]).ok()?;
    Some(Running { pid, socket: PathBuf::from(socket), ready: state.trim() == "ready" })
}

/// Asks a server to stop at once, cleanly.
pub(super) fn stop(pid: u32) {
    let _ = Command::new("/bin/sh").args(["-c", "kill -INT \"$1\"", "sh", &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Removes the `postmaster.pid` of a server that did not live to do so, if its number now belongs to another program: the
/// server would refuse to start. Call only when nothing of ours is left.
pub(super) fn remove_stale_pid(folder: &Folder) -> Result<(), EmbeddedError> {
    if let Some(Running { pid, .. }) = running(folder) {
        return Err(EmbeddedError::StartedElsewhere { folder: folder.path().to_owned(), pid });
    }
    let path = folder.postmaster_pid();
    let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
    let pid = text.lines().next().unwrap_or_default().trim();
    if program(pid).is_some_and(|name| name.contains("postgres")) {
        return Ok(());
    }
    fs::remove_file(&path).map_err(EmbeddedError::io("remove", &path))
}

/// The name of the program that runs as process `pid`.
fn program(pid: &str) -> Option<String> {
    if Path::new("/proc/self/comm").exists() {
        return fs::read_to_string(Path::new("/proc").join(pid).join("comm")).ok();
    }
    let output = Command::new("ps").args(["-o", "comm=", "-p", pid]).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_pid_file_is_read_from_both_ends() {
        let text = "42\n/tmp/a\nb/data\n1700000000\n5432\n/tmp/queue-1\n\n  123 456\nready   \n";
        let running = parse(text).expect("complete");
        assert_eq!((running.pid, running.socket.to_str(), running.ready), (42, Some("/tmp/queue-1"), true));
        assert!(parse("42\n/tmp/data\n").is_none());
    }
}
