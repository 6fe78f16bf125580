//! Where servers of tests keep their data.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// A folder that everybody may write to: in memory if there is room, else the system's temporary one. On a disk that is told of each block
/// that is freed, making and dropping a test's database costs ten times the processor. `TMPDIR` names another.
pub fn scratch() -> PathBuf {
    /// What a run of all tests may take, several times over.
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
