//! Joining and leaving: a user is whoever holds the FIFO open for writing.
//!
//! The script that reads the FIFO sees its end of file once no user is left. A new user may come at that very moment, so
//! the script renames the FIFO twice, `users` to `closing` to `closed`, and looks for its end again in between. A user
//! holds a place once it has the FIFO open while it is called `users`: the script cannot get past the second look then. One
//! that finds `closing` calls it `users` again, and the script starts over. Only the holder of `start.lock` joins.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
};

use crate::{
    EmbeddedError,
    folder::{Folder, is_at},
    run_as::RunAs,
};

/// Opening for writing must fail, not wait, when nobody reads.
const O_NONBLOCK: i32 = if cfg!(any(target_os = "linux", target_os = "android")) { 0o4000 } else { 0x4 };
/// What it fails with then, on every Unix.
const ENXIO: i32 = 6;

/// What a user finds.
pub(crate) enum Entrance {
    /// We hold a place: the server will not be stopped while the file is open.
    Open(File),
    /// The server is stopping, or was never started.
    Closed,
    /// Nobody reads the FIFO: the script was killed, or has not begun yet.
    Unwatched,
}

/// Tries to join.
pub(crate) fn join(folder: &Folder) -> Result<Entrance, EmbeddedError> {
    let users = folder.users();
    loop {
        let _ = fs::rename(folder.closing(), &users);
        match OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&users) {
            Ok(file) if is_at(&file, &users) => return Ok(Entrance::Open(file)),
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(ENXIO) => return Ok(Entrance::Unwatched),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !folder.closing().exists() {
                    return Ok(Entrance::Closed);
                }
            }
            Err(error) => return Err(EmbeddedError::io("open", &users)(error)),
        }
    }
}

/// Makes a FIFO for a server that is about to start. The file counts as a user and as a reader, so the script neither waits
/// for a user nor misses one; replace it by a place of one's own with [`join`] when the script reads.
///
/// The FIFO of an earlier run is taken over with the users that it still has.
pub(crate) fn open(folder: &Folder, run_as: &RunAs) -> Result<File, EmbeddedError> {
    let users = folder.users();
    for earlier in [folder.closing(), folder.closed()] {
        let _ = fs::rename(earlier, &users);
    }
    if !fs::metadata(&users).is_ok_and(|users| users.file_type().is_fifo()) {
        let _ = fs::remove_file(&users);
        let status = run_as.command("mkfifo").args(["-m", "600"]).arg(&users).status();
        let made = status.and_then(|status| if status.success() { Ok(()) } else { Err(io::Error::other("`mkfifo` failed")) });
        made.map_err(EmbeddedError::io("make the FIFO", &users))?;
    }
    OpenOptions::new().read(true).write(true).open(&users).map_err(EmbeddedError::io("open", &users))
}
