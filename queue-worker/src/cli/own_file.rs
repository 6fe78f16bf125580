//! The settings file that is read unasked: only if nobody else can have written it. Whoever starts a command in a folder of somebody else's is not
//! to work on that one's database.

use std::{
    fs::{File, metadata, symlink_metadata},
    io,
    io::Read as _,
    path::Path,
};

/// Its text; or why it is passed over.
pub(super) fn read_unasked(path: &Path) -> io::Result<Result<String, String>> {
    // Before it is opened: to open a pipe waits for whoever writes to it.
    if !metadata(path)?.is_file() {
        return Ok(Err("it is no file".to_owned()));
    }
    // A link may lead to a file of the user's own, but whoever made it has chosen which.
    if let Some(why) = belongs_to_others(&symlink_metadata(path)?) {
        return Ok(Err(why));
    }
    let mut file = File::open(path)?;
    if let Some(why) = distrust(&file.metadata()?) {
        return Ok(Err(why));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map(|_| Ok(text))
}

/// The user's own, or root's; and written by nobody else. A group that is called as its user has no other members.
#[cfg(unix)]
fn distrust(file: &std::fs::Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let (owner, group, mode) = (file.uid(), file.gid(), file.mode());
    let by_group = mode & 0o020 != 0 && group != owner;
    let is_open = by_group || mode & 0o002 != 0;
    belongs_to_others(file).or_else(|| is_open.then(|| format!("others may write it (mode {:o})", mode & 0o777)))
}

#[cfg(unix)]
fn belongs_to_others(file: &std::fs::Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let (us, owner) = (rustix::process::geteuid().as_raw(), file.uid());
    (owner != us && owner != 0).then(|| format!("it belongs to another user (uid {owner})"))
}

#[cfg(not(unix))]
fn distrust(_: &std::fs::Metadata) -> Option<String> {
    None
}

#[cfg(not(unix))]
fn belongs_to_others(_: &std::fs::Metadata) -> Option<String> {
    None
}
