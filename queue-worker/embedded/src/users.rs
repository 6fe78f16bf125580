//! Joining and leaving: a user is a process that holds the FIFO open for writing.
//!
//! The script that reads the FIFO gets end of file when no user is left. A new user may join at that moment. So the script renames the FIFO
//! twice, from `users` to `closing` to `closed`, and reads until end of file again in between. A user has joined if it has the FIFO open
//! while its name is `users`: the script then blocks in its second read. A user that finds `closing` renames it back to `users`, and the
//! script starts over. Only the holder of `start.lock` joins.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
};

use crate::{
    EmbeddedError,
    folder::{Folder, is_file_at},
    run_as::RunAs,
};

/// Makes opening for writing fail instead of wait when no process reads.
const O_NONBLOCK: i32 = if cfg!(any(target_os = "linux", target_os = "android")) { 0o4000 } else { 0x4 };
/// Error of such an open, on every Unix.
const ENXIO: i32 = 6;

/// Result of an attempt to join.
pub(crate) enum JoinResult {
    /// Joined: the server does not stop while the file is open.
    Joined(File),
    /// The server is stopping, or was never started.
    NotRunning,
    /// No process reads the FIFO: the script was killed, or has not started yet.
    NoReader,
}

/// Tries to join.
pub(crate) fn join(folder: &Folder) -> Result<JoinResult, EmbeddedError> {
    let users = folder.users();
    loop {
        let _ = fs::rename(folder.closing(), &users);
        match OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&users) {
            Ok(file) if is_file_at(&file, &users) => return Ok(JoinResult::Joined(file)),
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(ENXIO) => return Ok(JoinResult::NoReader),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !folder.closing().exists() {
                    return Ok(JoinResult::NotRunning);
                }
            }
            Err(error) => return Err(EmbeddedError::io("open", &users)(error)),
        }
    }
}

/// Creates the FIFO for a server that is about to start. The returned file counts as a user and as a reader, so the script neither waits
/// for a user nor misses one. Once the script reads, replace it with the result of [`join`].
///
/// The FIFO of an earlier run is reused with its remaining users.
pub(crate) fn open_fifo(folder: &Folder, run_as: &RunAs) -> Result<File, EmbeddedError> {
    let users = folder.users();
    for earlier in [folder.closing(), folder.closed()] {
        let _ = fs::rename(earlier, &users);
    }
    if !fs::metadata(&users).is_ok_and(|users| users.file_type().is_fifo()) {
        let _ = fs::remove_file(&users);
        let status = run_as.command("mkfifo").args(["-m", "600"]).arg(&users).status();
        let made = status.and_then(|status| if status.success() { Ok(()) } else { Err(io::Error::other("`mkfifo` failed")) });
        made.map_err(EmbeddedError::io("create the FIFO", &users))?;
    }
    OpenOptions::new().read(true).write(true).open(&users).map_err(EmbeddedError::io("open", &users))
}
