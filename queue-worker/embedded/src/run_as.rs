//! Selects the user that runs the server. `PostgreSQL` refuses to run as root, and its user must be able to access the server's files.
//!
//! Privileges are dropped with the options of std's `Command`. A user namespace is entered with the program `unshare`.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::{fs::MetadataExt, fs::lchown, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use crate::{EmbeddedError, find::Binaries, folder::Folder};

/// User that runs the server and its helper programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunAs {
    /// User of this process.
    CurrentUser,
    /// Another user. Only root can switch to another user.
    User { uid: u32, gid: u32 },
    /// User namespace. Files are accessed as the user of this process, but under another user name and without privileges.
    Namespace { uid: u32, gid: u32 },
}

impl RunAs {
    /// Selects the user that runs the server. A process that does not run as root selects its own user. Root selects the owner of an
    /// existing cluster. Without a cluster, root selects the first of a few users that can access the folder and the binaries. Root falls
    /// back to a user namespace, unless another user owns the cluster.
    pub(crate) fn choose(folder: &Folder, binaries: &Binaries) -> Result<Self, EmbeddedError> {
        let data = folder.data();
        let owner = fs::metadata(&data).ok().map(|data| (data.uid(), data.gid()));
        let me = effective_uid();
        match owner {
            _ if me != 0 && owner.is_none_or(|(uid, _)| uid == me) => return Ok(Self::CurrentUser),
            Some((owner, _)) if me != 0 => return Err(EmbeddedError::OtherOwner { folder: folder.path().to_owned(), owner }),
            _ => {}
        }
        let users = match owner {
            Some((0, _)) => Vec::new(),
            Some(owner) => vec![owner],
            None => ["postgres", "nobody"].into_iter().filter_map(query_user).filter(|&(uid, _)| uid != 0).collect(),
        };
        let server = binaries.bin.join("postgres");
        let unreachable = |uid| [folder.path(), &server].into_iter().find(|path| !can_reach(uid, path));
        if let Some(&(uid, gid)) = users.iter().find(|(uid, _)| unreachable(*uid).is_none()) {
            return Ok(Self::User { uid, gid });
        }
        // In a namespace, the server can read only root's files. It cannot read a cluster that another user created.
        if owner.is_none_or(|(uid, _)| uid == 0)
            && let Some(namespace) = find_namespace()
        {
            return Ok(namespace);
        }
        let path = users.iter().find_map(|&(uid, _)| unreachable(uid)).unwrap_or(folder.path()).to_owned();
        Err(EmbeddedError::Unreachable { path })
    }

    /// Returns the owner of the cluster, without checking that the owner can access the files of the cluster. Returns the current user if
    /// there is no cluster, if root owns the cluster, or if this process does not run as root.
    pub(crate) fn owner_of(folder: &Folder) -> Self {
        match fs::metadata(folder.data()) {
            Ok(data) if is_root() && data.uid() != 0 => Self::User { uid: data.uid(), gid: data.gid() },
            _ => Self::CurrentUser,
        }
    }

    /// Returns a command that runs as this user. The command inherits only a few environment variables, because the others may contain
    /// secrets or client settings.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match self {
            Self::CurrentUser => Command::new(program),
            Self::User { uid, gid } => {
                let mut command = Command::new(program);
                command.uid(*uid).gid(*gid);
                command
            }
            Self::Namespace { uid, gid } => {
                let mut command = Command::new("unshare");
                command.args(["--user", &format!("--map-user={uid}"), &format!("--map-group={gid}"), "--"]).arg(program);
                command
            }
        };
        reset_environment(&mut command);
        command
    }

    /// Makes the server's user the owner of `path`, without following symbolic links.
    pub(crate) fn chown(&self, path: &Path) -> Result<(), EmbeddedError> {
        match self {
            Self::User { uid, gid } => lchown(path, Some(*uid), Some(*gid)).map_err(EmbeddedError::io("change the owner of", path)),
            Self::CurrentUser | Self::Namespace { .. } => Ok(()),
        }
    }

    /// Returns the user id that owns the server's files.
    pub(crate) fn owner(&self) -> u32 {
        match self {
            Self::User { uid, .. } => *uid,
            Self::CurrentUser | Self::Namespace { .. } => effective_uid(),
        }
    }
}

/// Returns `run_as`, or a user namespace if the current user has no name, as may be the case in a container. The namespace provides the
/// user name that `initdb` requires. If namespaces are not allowed, returns `run_as` even without a name.
pub(crate) fn with_user_name(run_as: &RunAs) -> RunAs {
    let nameless = *run_as == RunAs::CurrentUser && run_id(&["-un"]).is_none();
    nameless.then(find_namespace).flatten().unwrap_or_else(|| run_as.clone())
}

pub(crate) fn is_root() -> bool {
    effective_uid() == 0
}

fn effective_uid() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)?.parse().ok()).or_else(|| query_number(&["-u"])).unwrap_or(u32::MAX)
}

/// Returns whether a user can traverse all folders above a path.
fn can_reach(uid: u32, path: &Path) -> bool {
    let passes = |folder: fs::Metadata| folder.mode() & 0o001 != 0 || (folder.uid() == uid && folder.mode() & 0o100 != 0);
    path.ancestors().skip(1).all(|folder| fs::metadata(folder).is_ok_and(passes))
}

/// Returns a user namespace that maps the current user to the user `postgres`, `nobody` or `daemon`. Returns `None` if none of these users
/// exists, or if the system does not allow user namespaces.
fn find_namespace() -> Option<RunAs> {
    let (uid, gid) = ["postgres", "nobody", "daemon"].into_iter().filter_map(query_user).find(|&(uid, _)| uid != 0)?;
    let namespace = RunAs::Namespace { uid, gid };
    let allowed = namespace.command("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    allowed.then_some(namespace)
}

fn query_user(name: &str) -> Option<(u32, u32)> {
    Some((query_number(&["-u", name])?, query_number(&["-g", name])?))
}

/// Runs `id` and returns the printed user or group id. The id may be negative on macOS.
fn query_number(arguments: &[&str]) -> Option<u32> {
    run_id(arguments)?.parse::<i64>().ok().map(|number| number as u32)
}

fn run_id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Clears the environment except for library paths, `PATH` and the time zone. Sets the working directory to `/`, and redirects the
/// standard streams to `/dev/null`.
fn reset_environment(command: &mut Command) {
    command.env_clear().current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for name in ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ"] {
        if let Some(value) = env::var_os(name) {
            command.env(name, value);
        }
    }
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(OsString::from(":/usr/bin:/bin:/usr/sbin:/sbin"));
    command.env("PATH", path).env("LC_ALL", "C");
}
