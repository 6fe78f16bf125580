//! The folder of one cluster: which it is, what is in it, and the two locks that order starting and stopping.
//!
//! - `start.lock` is held by the one process that is joining or starting the server.
//! - `alive.lock` is held by everything that belongs to a running server; free means that nothing of it is left.
//!
//! An ephemeral folder may vanish while somebody waits for a lock in it, so a lock counts only if its file is still there.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::{EmbeddedError, EmbeddedOptions, find, run_as};

/// A cluster's folder, by its real path.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

/// Makes the methods that name the folder's files.
macro_rules! files {
    ($($(#[$doc:meta])* $method:ident = $name:literal;)*) => {
        $($(#[$doc])* pub(crate) fn $method(&self) -> PathBuf { self.0.join($name) })*
    };
}

impl Folder {
    files! {
        /// The cluster itself.
        data = "data";
        /// The server's log.
        log = "postgres.log";
        /// What runs the server; written anew at each start.
        script = "supervise.sh";
        /// The FIFO that users hold open.
        users = "users";
        /// The same while the script makes sure that it has no users.
        closing = "closing";
        /// The same once the server is bound to stop.
        closed = "closed";
        start_lock = "start.lock";
        alive_lock = "alive.lock";
        postmaster_pid = "data/postmaster.pid";
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The folder at `path`, made if need be. Refuses one with files in it that is not ours: we are going to change its owner
    /// and mode, and perhaps to remove it.
    pub(crate) fn open(path: &Path) -> Result<Self, EmbeddedError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(EmbeddedError::io("create", parent))?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(EmbeddedError::io("create", path)(error)),
            _ => {}
        }
        let folder = Self(fs::canonicalize(path).map_err(EmbeddedError::io("find", path))?);
        if folder.foreign().map_err(|error| folder.refused(error))? {
            return Err(EmbeddedError::ForeignFolder { folder: folder.0 });
        }
        Ok(folder)
    }

    /// Whether there are files, but not ours. The locks are the first to come and the last to go.
    fn foreign(&self) -> io::Result<bool> {
        let names: Vec<_> = fs::read_dir(&self.0)?.flatten().map(|entry| entry.path()).collect();
        let ours = names.contains(&self.start_lock()) || names.contains(&self.alive_lock());
        Ok(!names.is_empty() && !ours && !self.start_lock().exists())
    }

    fn refused(&self, error: io::Error) -> EmbeddedError {
        match fs::metadata(&self.0) {
            Ok(found) if error.kind() == io::ErrorKind::PermissionDenied => {
                EmbeddedError::OtherOwner { folder: self.0.clone(), owner: found.uid() }
            }
            _ => EmbeddedError::io("read", &self.0)(error),
        }
    }

    /// The major version that made the cluster, if there is one.
    pub(crate) fn version(&self) -> Option<u32> {
        version(&self.0)
    }

    /// Whether nothing of a server that was started is left.
    pub(crate) fn ended(&self) -> bool {
        let path = self.alive_lock();
        File::open(&path).map_or(true, |file| file.try_lock_shared().is_ok() || !is_at(&file, &path))
    }

    /// Makes the folder private and gives it and what we have put there to the server's user.
    pub(crate) fn give_to(&self, run_as: &run_as::RunAs) -> Result<(), EmbeddedError> {
        for path in [self.path(), &self.start_lock(), &self.alive_lock()] {
            run_as.own(path)?;
        }
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o700)).map_err(EmbeddedError::io("make private", &self.0))
    }
}

/// Takes a lock if it is free. `Gone` if the folder has been removed.
pub(crate) fn try_lock(path: &Path) -> Result<Lock, EmbeddedError> {
    let file = match open_lock(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock::Gone),
        opened => opened.map_err(EmbeddedError::io("open", path))?,
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(Lock::Taken),
        Err(TryLockError::Error(error)) => return Err(EmbeddedError::io("lock", path)(error)),
        Ok(()) => {}
    }
    Ok(if is_at(&file, path) { Lock::Ours(file) } else { Lock::Gone })
}

/// What came of trying to take a lock.
pub(crate) enum Lock {
    Ours(File),
    Taken,
    Gone,
}

/// Whether the file is still the one at that path.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => identity(ours) == identity(there),
        _ => false,
    }
}

/// Creates it only where nothing is, and never through a link.
fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.clone().create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        created => created,
    }
}

fn version(folder: &Path) -> Option<u32> {
    fs::read_to_string(folder.join("data/PG_VERSION")).ok()?.trim().parse().ok()
}

/// Which folder the options mean, and our folder for all data of this user, if it is known.
pub(crate) fn choose(options: &EmbeddedOptions) -> Result<(PathBuf, Option<PathBuf>), EmbeddedError> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = own(set("XDG_DATA_HOME"), set("HOME"));
    if let Some(folder) = options.folder.clone().or_else(|| set("QUEUE_PG_DATA")) {
        return Ok((folder, own));
    }
    let own = own.ok_or(EmbeddedError::NoHome)?;
    Ok((own.join(major(&own)?.to_string()), Some(own)))
}

/// Root's home is closed to every user that the server could run as, so root's data goes where services keep theirs.
fn own(xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let apple = cfg!(target_os = "macos");
    let folder = match (xdg.filter(|xdg| xdg.is_absolute()), home) {
        (Some(xdg), _) => xdg,
        _ if run_as::is_root() => PathBuf::from(if apple { "/usr/local/var" } else { "/var/lib" }),
        (None, Some(home)) => home.join(if apple { "Library/Application Support" } else { ".local/share" }),
        (None, None) => return None,
    };
    Some(folder.join("queue-worker"))
}

/// The version to use where none is asked for: that of the newest cluster that is there and can be run. So an upgrade of the
/// system's packages does not hide the jobs of the version before.
fn major(own: &Path) -> Result<u32, EmbeddedError> {
    let entries = fs::read_dir(own).into_iter().flatten().flatten();
    let mut existing: Vec<u32> = entries.filter_map(|entry| version(&entry.path())).collect();
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
