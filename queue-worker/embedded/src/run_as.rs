//! As whom the server runs: `PostgreSQL` refuses root, and its files have to be within its user's reach.
//!
//! Drops privileges with what std offers for a child, and enters a user namespace with the program `unshare`.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::{fs::MetadataExt, fs::lchown, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use crate::{EmbeddedError, find::Binaries, folder::Folder};

/// As whom the server and all that serves it run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunAs {
    /// As ourselves.
    Same,
    /// As another user, which only root can do.
    User { uid: u32, gid: u32 },
    /// As ourselves on the disk, but under another name and without privileges.
    Namespace { uid: u32, gid: u32 },
}

impl RunAs {
    /// An existing cluster keeps its owner; a new one gets the first user that reaches both folder and binaries.
    pub(crate) fn choose(folder: &Folder, binaries: &Binaries) -> Result<Self, EmbeddedError> {
        let data = folder.data();
        let owner = fs::metadata(&data).ok().map(|data| (data.uid(), data.gid()));
        let me = effective_uid();
        match owner {
            _ if me != 0 && owner.is_none_or(|(uid, _)| uid == me) => return Ok(Self::Same),
            Some((owner, _)) if me != 0 => return Err(EmbeddedError::OtherOwner { folder: folder.path().to_owned(), owner }),
            _ => {}
        }
        let users = match owner {
            Some((0, _)) => Vec::new(),
            Some(owner) => vec![owner],
            None => ["postgres", "nobody"].into_iter().filter_map(user).filter(|&(uid, _)| uid != 0).collect(),
        };
        let server = binaries.bin.join("postgres");
        let unreachable = |uid| [folder.path(), &server].into_iter().find(|path| !reaches(uid, path));
        if let Some(&(uid, gid)) = users.iter().find(|(uid, _)| unreachable(*uid).is_none()) {
            return Ok(Self::User { uid, gid });
        }
        // A cluster that another user made cannot be read from a namespace, which has root's files only.
        if owner.is_none_or(|(uid, _)| uid == 0)
            && let Some(namespace) = namespace()
        {
            return Ok(namespace);
        }
        let path = users.iter().find_map(|&(uid, _)| unreachable(uid)).unwrap_or(folder.path()).to_owned();
        Err(EmbeddedError::Unreachable { path })
    }

    /// Without regard to what is reachable: as the user of an existing cluster.
    pub(crate) fn owner_of(folder: &Folder) -> Self {
        match fs::metadata(folder.data()) {
            Ok(data) if is_root() && data.uid() != 0 => Self::User { uid: data.uid(), gid: data.gid() },
            _ => Self::Same,
        }
    }

    /// A program to be run as that user: without our environment, which may hold secrets and settings for clients.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match self {
            Self::Same => Command::new(program),
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
        clean(&mut command);
        command
    }

    /// Gives a path, not what it may link to, to the server's user.
    pub(crate) fn own(&self, path: &Path) -> Result<(), EmbeddedError> {
        match self {
            Self::User { uid, gid } => lchown(path, Some(*uid), Some(*gid)).map_err(EmbeddedError::io("change the owner of", path)),
            Self::Same | Self::Namespace { .. } => Ok(()),
        }
    }

    /// The owner of the server's files on the disk.
    pub(crate) fn owner(&self) -> u32 {
        match self {
            Self::User { uid, .. } => *uid,
            Self::Same | Self::Namespace { .. } => effective_uid(),
        }
    }
}

/// `initdb` insists on a name for its user, which a container started under any number lacks: there it borrows one.
pub(crate) fn with_name(run_as: &RunAs) -> RunAs {
    let nameless = *run_as == RunAs::Same && id(&["-un"]).is_none();
    nameless.then(namespace).flatten().unwrap_or_else(|| run_as.clone())
}

pub(crate) fn is_root() -> bool {
    effective_uid() == 0
}

fn effective_uid() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)?.parse().ok()).or_else(|| number(&["-u"])).unwrap_or(u32::MAX)
}

/// Whether a user may pass all folders above a path.
fn reaches(uid: u32, path: &Path) -> bool {
    let passes = |folder: fs::Metadata| folder.mode() & 0o001 != 0 || (folder.uid() == uid && folder.mode() & 0o100 != 0);
    path.ancestors().skip(1).all(|folder| fs::metadata(folder).is_ok_and(passes))
}

/// A user namespace, if the system allows one, under a name that exists.
fn namespace() -> Option<RunAs> {
    let (uid, gid) = ["postgres", "nobody", "daemon"].into_iter().filter_map(user).find(|&(uid, _)| uid != 0)?;
    let namespace = RunAs::Namespace { uid, gid };
    let allowed = namespace.command("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    allowed.then_some(namespace)
}

fn user(name: &str) -> Option<(u32, u32)> {
    Some((number(&["-u", name])?, number(&["-g", name])?))
}

/// Users of macOS may have negative numbers.
fn number(arguments: &[&str]) -> Option<u32> {
    id(arguments)?.parse::<i64>().ok().map(|number| number as u32)
}

fn id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Keeps what programs need to be found and linked, and the time zone.
fn clean(command: &mut Command) {
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
