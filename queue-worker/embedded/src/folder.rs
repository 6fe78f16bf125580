//! Directory of an embedded cluster: its selection, its files, and the two locks that serialize starting and stopping.
//!
//! - `start.lock` is held by the one process that is joining or starting the server.
//! - `alive.lock` is held by all processes of a running server. A free lock means that every server process has exited.
//!
//! The directory of an ephemeral server may be removed while a process waits for one of the locks. A lock is therefore valid only if its
//! path still names the locked file.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::{EmbeddedError, EmbeddedOptions, find, run_as};

/// Directory of the embedded PostgreSQL cluster, identified by its canonical path.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

/// Generates the methods that return the paths of the directory's files.
macro_rules! files {
    ($($(#[$doc:meta])* $method:ident = $name:literal;)*) => {
        $($(#[$doc])* pub(crate) fn $method(&self) -> PathBuf { self.0.join($name) })*
    };
}

impl Folder {
    files! {
        /// Returns the path of the cluster's data directory.
        data = "data";
        /// Returns the path of the server log.
        log = "postgres.log";
        /// Returns the path of the script that runs the server. The script is rewritten at each start.
        script = "supervise.sh";
        /// Returns the path of the FIFO that processes hold open while they use the server.
        users = "users";
        /// Returns the path to which the FIFO is renamed while the script checks again whether any process uses the server.
        closing = "closing";
        /// Returns the path to which the FIFO is renamed once the server is certain to stop.
        closed = "closed";
        start_lock = "start.lock";
        alive_lock = "alive.lock";
        postmaster_pid = "data/postmaster.pid";
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Opens the folder at `path`, creating it if necessary. Rejects a folder that contains another program's files. Without this check,
    /// the server's user would become the owner of that folder, or the folder would be removed with an ephemeral server.
    pub(crate) fn open(path: &Path) -> Result<Self, EmbeddedError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(EmbeddedError::io("create", parent))?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(EmbeddedError::io("create", path)(error)),
            _ => {}
        }
        let folder = Self(fs::canonicalize(path).map_err(EmbeddedError::io("resolve", path))?);
        if folder.has_foreign_files().map_err(|error| folder.access_error(error))? {
            return Err(EmbeddedError::ForeignFolder { folder: folder.0 });
        }
        Ok(folder)
    }

    /// Returns whether the folder contains files, but neither of this crate's lock files. Such files belong to another program, because
    /// this crate creates its lock files first and removes them last.
    fn has_foreign_files(&self) -> io::Result<bool> {
        let names: Vec<_> = fs::read_dir(&self.0)?.flatten().map(|entry| entry.path()).collect();
        let ours = names.contains(&self.start_lock()) || names.contains(&self.alive_lock());
        Ok(!names.is_empty() && !ours && !self.start_lock().exists())
    }

    fn access_error(&self, error: io::Error) -> EmbeddedError {
        match fs::metadata(&self.0) {
            Ok(found) if error.kind() == io::ErrorKind::PermissionDenied => {
                EmbeddedError::OtherOwner { folder: self.0.clone(), owner: found.uid() }
            }
            _ => EmbeddedError::io("read", &self.0)(error),
        }
    }

    /// Returns the major version that created the cluster, or `None` if there is no cluster.
    pub(crate) fn version(&self) -> Option<u32> {
        cluster_version(&self.0)
    }

    /// Returns whether all processes of a started server have exited.
    pub(crate) fn has_ended(&self) -> bool {
        let path = self.alive_lock();
        File::open(&path).map_or(true, |file| file.try_lock_shared().is_ok() || !is_file_at(&file, &path))
    }

    /// Makes the folder private, and changes the owner of the folder and its locks to the server's user.
    pub(crate) fn give_ownership_to(&self, run_as: &run_as::RunAs) -> Result<(), EmbeddedError> {
        for path in [self.path(), &self.start_lock(), &self.alive_lock()] {
            run_as.chown(path)?;
        }
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o700)).map_err(EmbeddedError::io("make private", &self.0))
    }
}

/// Tries to acquire the lock whose file is `path`, without waiting.
pub(crate) fn try_lock(path: &Path) -> Result<LockResult, EmbeddedError> {
    let file = match open_lock(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LockResult::Removed),
        opened => opened.map_err(EmbeddedError::io("open", path))?,
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(LockResult::Busy),
        Err(TryLockError::Error(error)) => return Err(EmbeddedError::io("lock", path)(error)),
        Ok(()) => {}
    }
    Ok(if is_file_at(&file, path) { LockResult::Acquired(file) } else { LockResult::Removed })
}

/// Result of [`try_lock`].
pub(crate) enum LockResult {
    Acquired(File),
    Busy,
    Removed,
}

/// Returns whether `path` still names the open `file`.
pub(crate) fn is_file_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => identity(ours) == identity(there),
        _ => false,
    }
}

/// Opens the lock file and creates it if it does not exist. Creation does not follow symbolic links.
fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.clone().create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        created => created,
    }
}

fn cluster_version(folder: &Path) -> Option<u32> {
    fs::read_to_string(folder.join("data/PG_VERSION")).ok()?.trim().parse().ok()
}

/// Returns the cluster's directory, selected from the options and the environment variables. Also returns this crate's data folder if
/// known.
pub(crate) fn choose(options: &EmbeddedOptions) -> Result<(PathBuf, Option<PathBuf>), EmbeddedError> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = data_home(set("XDG_DATA_HOME"), set("HOME"));
    if let Some(folder) = options.folder.clone().or_else(|| set("QUEUE_PG_DATA")) {
        return Ok((folder, own));
    }
    let own = own.ok_or(EmbeddedError::NoHome)?;
    Ok((own.join(select_version(&own)?.to_string()), Some(own)))
}

/// Returns this crate's data folder, or `None` if the environment does not determine it. Without `XDG_DATA_HOME`, root uses the system's
/// directory for service data, because the server runs as another user, which cannot read root's home.
fn data_home(xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let apple = cfg!(target_os = "macos");
    let folder = match (xdg.filter(|xdg| xdg.is_absolute()), home) {
        (Some(xdg), _) => xdg,
        _ if run_as::is_root() => PathBuf::from(if apple { "/usr/local/var" } else { "/var/lib" }),
        (None, Some(home)) => home.join(if apple { "Library/Application Support" } else { ".local/share" }),
        (None, None) => return None,
    };
    Some(folder.join("queue-worker"))
}

/// Returns the major version to use if no folder is configured. Prefers the version of the newest existing cluster for which binaries are
/// installed. An upgrade of the system's packages therefore does not hide the jobs in an older cluster.
fn select_version(own: &Path) -> Result<u32, EmbeddedError> {
    let entries = fs::read_dir(own).into_iter().flatten().flatten();
    let mut existing: Vec<u32> = entries.filter_map(|entry| cluster_version(&entry.path())).collect();
    existing.sort_unstable_by_key(|&version| std::cmp::Reverse(version));
    for &version in &existing {
        if find::find(Some(own), Some(version))?.version == version {
            return Ok(version);
        }
    }
    let found = find::find(Some(own), None)?.version;
    if !existing.is_empty() {
        tracing::warn!(folder = %own.display(), ?existing, found, "starting an empty database: no binaries for the existing ones");
    }
    Ok(found)
}
