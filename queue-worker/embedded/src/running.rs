//! Server state read from `postmaster.pid`. The state is valid only if the server's socket accepts connections.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{EmbeddedError, folder::Folder, run_as::RunAs, socket};

/// Server that listens on its socket.
pub(crate) struct RunningServer {
    pub(crate) pid: u32,
    /// Folder of the server's socket.
    pub(crate) socket: PathBuf,
    /// Whether the server accepts connections. False during its start and shutdown.
    pub(crate) ready: bool,
}

/// Returns the folder's server, or `None` if no server is listening.
pub(crate) fn find_running(folder: &Folder) -> Option<RunningServer> {
    let text = fs::read(folder.postmaster_pid()).ok()?;
    let running = parse_pid_file(&String::from_utf8_lossy(&text))?;
    UnixStream::connect(socket::socket_path(&running.socket)).ok().map(|_| running)
}

/// Parses `postmaster.pid`. The second line is a path that can contain line breaks. All lines after the path are therefore located from
/// the end of the file.
fn parse_pid_file(text: &str) -> Option<RunningServer> {
    let pid = text.lines().next()?.trim().parse().ok()?;
    let [socket, _listen, _memory, state] =
        text.lines().rev().take(4).collect::<Vec<_>>().try_into().map(|[d, c, b, a]: [&str; 4]| [a, b, c, d]).ok()?;
    Some(RunningServer { pid, socket: PathBuf::from(socket), ready: state.trim() == "ready" })
}

/// Requests a fast shutdown of the server. The signal is sent as the server's user, not as root, because that user can write any process
/// id to `postmaster.pid`.
pub(crate) fn request_stop(folder: &Folder, pid: u32) {
    let mut kill = RunAs::owner_of(folder).command("/bin/sh");
    let _ = kill.args(["-c", "kill -INT \"$1\"", "sh", &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Removes the `postmaster.pid` of a killed server. The next server would refuse to start if the process id now belonged to another
/// process or to a zombie. Must only be called after all processes of the killed server have exited.
pub(crate) fn remove_stale_pid(folder: &Folder) -> Result<(), EmbeddedError> {
    let path = folder.postmaster_pid();
    let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
    let pid = text.lines().next().unwrap_or_default().trim().parse().unwrap_or_default();
    if find_running(folder).is_some() || is_server_of(pid, &folder.data()) {
        return Err(EmbeddedError::StartedElsewhere { folder: folder.path().to_owned(), pid });
    }
    fs::remove_file(&path).map_err(EmbeddedError::io("remove", &path))
}

/// Returns whether a process is a server of this cluster. A server's working directory is its data directory. Without `/proc`, accepts
/// any process named `postgres` that is not a zombie.
fn is_server_of(pid: u32, data: &Path) -> bool {
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
    use super::parse_pid_file;

    #[test]
    fn a_pid_file_is_read_from_both_ends() {
        let text = "42\n/tmp/a\nb/data\n1700000000\n5432\n/tmp/queue-1\n\n  123 456\nready   \n";
        let running = parse_pid_file(text).expect("complete");
        assert_eq!((running.pid, running.socket.to_str(), running.ready), (42, Some("/tmp/queue-1"), true));
        assert!(parse_pid_file("42\n/tmp/data\n").is_none());
    }
}
