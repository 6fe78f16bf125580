//! Where the server's socket is, and the URL that leads there.

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

/// It only names the socket: nothing listens on a network.
pub(crate) const PORT: &str = "5432";
/// The longest path of a socket, in bytes.
const LIMIT: usize = if cfg!(any(target_os = "linux", target_os = "android")) { 107 } else { 103 };

/// The socket in a folder of sockets.
pub(crate) fn file(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}"))
}

/// The folder for the server's socket: the cluster's own, or a short private one if that path does not do.
pub(crate) fn choose(folder: &Folder, run_as: &RunAs) -> Result<PathBuf, EmbeddedError> {
    if fits(folder.path()) {
        return Ok(folder.path().to_owned());
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|_| *run_as == RunAs::Same);
    let tried: Vec<PathBuf> = runtime.into_iter().filter(|dir| dir.is_absolute()).chain([PathBuf::from("/tmp")]).collect();
    for parent in &tried {
        for attempt in 0..8 {
            let mut hasher = DefaultHasher::new();
            (folder.path(), attempt).hash(&mut hasher);
            let short = parent.join(format!("queue-{:016x}", hasher.finish()));
            if fits(&short) && private(&short, run_as) {
                return Ok(short);
            }
        }
    }
    Err(EmbeddedError::SocketPath { folder: folder.path().to_owned(), limit: LIMIT, tried })
}

/// Removes what a server that was killed left beside its socket; like `postmaster.pid` it may name a process by now.
pub(crate) fn remove_stale_lock(folder: &Path) {
    if UnixStream::connect(file(folder)).is_err() {
        let _ = fs::remove_file(folder.join(format!(".s.PGSQL.{PORT}.lock")));
    }
}

/// Whether a socket's path is short enough there, and means the same to the server, to drivers and in a URL: the server
/// takes a list with commas, and URLs are UTF-8.
fn fits(folder: &Path) -> bool {
    let plain = |text: &str| !text.contains([',', '"']) && !text.contains(char::is_control) && text.trim() == text;
    file(folder).as_os_str().len() <= LIMIT && folder.to_str().is_some_and(plain)
}

/// Makes a folder for the server's user alone. In a folder that everybody may write somebody else may have been first.
fn private(folder: &Path, run_as: &RunAs) -> bool {
    if DirBuilder::new().mode(0o700).create(folder).is_ok() && run_as.own(folder).is_ok() {
        return true;
    }
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == run_as.owner() && found.permissions().mode() & 0o777 == 0o700)
}

/// The URL of the server whose socket is in a folder. Names the port and refuses TLS so that no `PG...` variable gets between.
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
    use super::{LIMIT, fits, url};
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
        let longest = LIMIT - "/.s.PGSQL.5432".len();
        assert!(fits(Path::new(&format!("/{}", "x".repeat(longest - 1)))));
        assert!(!fits(Path::new(&format!("/{}", "x".repeat(longest)))));
        assert!(!fits(Path::new("/tmp/a,b")));
    }
}
