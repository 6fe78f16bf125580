//! Lets processes join and leave as users of a server. Each server has a FIFO named `users` in its folder. A user is a process that holds
//! this FIFO open for writing.
//!
//! The script `supervise.sh` reads the FIFO, and reaches end of file when no user is left. A new user may join at that moment. The script
//! therefore renames the FIFO from `users` to `closing`, reads until end of file again, and then renames the FIFO to `closed`. A user has
//! joined if it has the FIFO open under the name `users`, because the script then blocks in its second read. A user that finds `closing`
//! renames the FIFO back to `users`, and the script repeats both reads. Only the holder of `start.lock` joins.

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

/// Flag for opening the FIFO. With this flag, an open for writing fails immediately if no process reads the FIFO.
const O_NONBLOCK: i32 = if cfg!(any(target_os = "linux", target_os = "android")) { 0o4000 } else { 0x4 };
/// Error number returned if the FIFO is opened for writing with `O_NONBLOCK` and no process reads it. The number is the same on every Unix.
const ENXIO: i32 = 6;

/// Result of an attempt to join.
pub(crate) enum JoinResult {
    /// This process has joined. The server does not stop while the file is open.
    Joined(File),
    /// The server is stopping, or was never started.
    NotRunning,
    /// No process reads the FIFO. The script was killed, or has not started yet.
    NoReader,
}

/// Tries to join the folder's server.
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

/// Creates the FIFO for a server that is about to start. The returned file counts as a user and as a reader. The script therefore opens
/// the FIFO without waiting, and does not reach end of file before a user has joined. Once the script reads the FIFO, replace the file
/// with the result of [`join`].
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
