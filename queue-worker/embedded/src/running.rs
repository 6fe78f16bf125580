//! What the server says about itself in `postmaster.pid`, believed only if its socket answers.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{EmbeddedError, folder::Folder, run_as::RunAs, socket};

/// A server that listens on its socket.
pub(crate) struct RunningServer {
    pub(crate) pid: u32,
    /// The folder of its socket.
    pub(crate) socket: PathBuf,
    /// Whether it accepts connections yet, and still.
    pub(crate) ready: bool,
}

/// The server of a folder, if one listens.
pub(crate) fn running(folder: &Folder) -> Option<RunningServer> {
    let text = fs::read(folder.postmaster_pid()).ok()?;
    let running = parse(&String::from_utf8_lossy(&text))?;
    UnixStream::connect(socket::file(&running.socket)).ok().map(|_| running)
}

/// Reads the lines after the second from the end, because the second is a path that may hold line breaks.
fn parse(text: &str) -> Option<RunningServer> {
    let pid = text.lines().next()?.trim().parse().ok()?;
    let [socket, _listen, _memory, state] =
        text.lines().rev().take(4).collect::<Vec<_>>().try_into().map(|[d, c, b, a]: [&str; 4]| [a, b, c, d]).ok()?;
    Some(RunningServer { pid, socket: PathBuf::from(socket), ready: state.trim() == "ready" })
}

/// Asks a server to stop at once, cleanly. As its own user: the number comes from a file that is not ours.
pub(crate) fn stop(folder: &Folder, pid: u32) {
    let mut kill = RunAs::owner_of(folder).command("/bin/sh");
    let _ = kill.args(["-c", "kill -INT \"$1\"", "sh", &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Removes the `postmaster.pid` of a server that did not live to do so. The next one would refuse to start if that number now
/// belongs to another process, or to what init has not reaped yet. Call only when nothing of ours is left.
pub(crate) fn remove_stale_pid(folder: &Folder) -> Result<(), EmbeddedError> {
    let path = folder.postmaster_pid();
    let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
    let pid = text.lines().next().unwrap_or_default().trim().parse().unwrap_or_default();
    if running(folder).is_some() || serves(pid, &folder.data()) {
        return Err(EmbeddedError::StartedElsewhere { folder: folder.path().to_owned(), pid });
    }
    fs::remove_file(&path).map_err(EmbeddedError::io("remove", &path))
}

/// Whether a process is a server of that cluster: each works in its cluster's folder. Without `/proc`, any living server may be.
fn serves(pid: u32, data: &Path) -> bool {
    if Path::new("/proc/self/cwd").exists() {
        return fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data);
    }
    let output = Command::new("ps").args(["-o", "stat=,comm=", "-p", &pid.to_string()]).output();
    output.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout);
        text.contains("postgres") && !text.trim_start().starts_with('Z')
    })
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
