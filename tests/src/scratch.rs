//! Data folder of the test servers.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Returns the folder that contains the data of test servers: `TMPDIR` if set, else a folder in memory if it has enough room, else the
/// system's temporary folder. A folder in memory saves CPU. On a disk that discards each freed block, creating and dropping
/// a test database costs ten times the CPU.
pub fn scratch() -> PathBuf {
    /// Required free memory in bytes, several times the space that a run of all tests needs.
    const ROOM: u64 = 4 << 30;
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let choose = || {
        let memory = Path::new("/dev/shm");
        let free = rustix::fs::statvfs(memory).map_or(0, |found| found.f_bavail * found.f_frsize);
        let is_open = rustix::fs::access(memory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok();
        if std::env::var_os("TMPDIR").is_none() && is_open && free >= ROOM { memory.to_owned() } else { std::env::temp_dir() }
    };
    FOLDER.get_or_init(choose).clone()
}
