//! Path of the server's socket, and the server's URL.

use std::{
    collections::hash_map::DefaultHasher,
    env,
    fmt::Write as _,
    fs::{self, DirBuilder},
    hash::{Hash, Hasher},
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use crate::{EmbeddedError, folder::Folder, run_as::RunAs};

/// Port number in the socket's name. The server does not listen on a network.
pub(crate) const PORT: &str = "5432";
/// Maximum length of a socket path in bytes.
const MAX_PATH_BYTES: usize = if cfg!(any(target_os = "linux", target_os = "android")) { 107 } else { 103 };

/// Returns the path of the socket in a folder.
pub(crate) fn socket_path(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}"))
}

/// Selects the folder of the server's socket: the cluster's directory, or a private folder with a short path if a socket in the cluster's
/// directory is not usable.
pub(crate) fn choose(folder: &Folder, run_as: &RunAs) -> Result<PathBuf, EmbeddedError> {
    if is_usable(folder.path()) {
        return Ok(folder.path().to_owned());
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|_| *run_as == RunAs::CurrentUser);
    let tried: Vec<PathBuf> = runtime.into_iter().filter(|dir| dir.is_absolute()).chain([PathBuf::from("/tmp")]).collect();
    for parent in &tried {
        for attempt in 0..8 {
            let mut hasher = DefaultHasher::new();
            (folder.path(), attempt).hash(&mut hasher);
            let short = parent.join(format!("queue-{:016x}", hasher.finish()));
            if is_usable(&short) && create_private(&short, run_as) {
                return Ok(short);
            }
        }
    }
    Err(EmbeddedError::SocketPath { folder: folder.path().to_owned(), limit: MAX_PATH_BYTES, tried })
}

/// Removes the lock file that a killed server left beside its socket. The next server would refuse to start if the process id in the lock
/// file now belonged to another process.
pub(crate) fn remove_stale_lock(folder: &Path) {
    if UnixStream::connect(socket_path(folder)).is_err() {
        let _ = fs::remove_file(folder.join(format!(".s.PGSQL.{PORT}.lock")));
    }
}

/// Returns whether the path of a socket in this folder is usable. The path must not exceed the system's maximum length. The folder's path
/// must be valid UTF-8 for the URL. It must not contain characters that have a special meaning in `unix_socket_directories`, which is a
/// comma-separated list, or in drivers.
fn is_usable(folder: &Path) -> bool {
    let plain = |text: &str| !text.contains([',', '"']) && !text.contains(char::is_control) && text.trim() == text;
    socket_path(folder).as_os_str().len() <= MAX_PATH_BYTES && folder.to_str().is_some_and(plain)
}

/// Creates a folder that only the server's user can access. Accepts an existing folder only if its owner and mode are correct, because
/// another user may have created the folder in a world-writable parent.
fn create_private(folder: &Path, run_as: &RunAs) -> bool {
    if DirBuilder::new().mode(0o700).create(folder).is_ok() && run_as.chown(folder).is_ok() {
        return true;
    }
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == run_as.owner() && found.permissions().mode() & 0o777 == 0o700)
}

/// Returns the URL of the server whose socket is in this folder. The URL specifies the port and disables TLS, so `PG...` variables have
/// no effect.
pub(crate) fn url(socket: &Path) -> String {
    let mut url = format!("postgresql://postgres@localhost:{PORT}/postgres?sslmode=disable&host=");
    for &byte in socket.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::{MAX_PATH_BYTES, is_usable, url};
    use std::path::Path;

    #[test]
    fn a_url_holds_any_path() {
        assert_eq!(
            url(Path::new("/tmp/a b&c=d+é%?#")),
            "postgresql://postgres@localhost:5432/postgres?sslmode=disable&host=/tmp/a%20b%26c%3Dd%2B%C3%A9%25%3F%23"
        );
    }

    #[test]
    fn a_socket_fits_up_to_the_limit() {
        let longest = MAX_PATH_BYTES - "/.s.PGSQL.5432".len();
        assert!(is_usable(Path::new(&format!("/{}", "x".repeat(longest - 1)))));
        assert!(!is_usable(Path::new(&format!("/{}", "x".repeat(longest)))));
        assert!(!is_usable(Path::new("/tmp/a,b")));
    }
}
