//! The settings file that is read unasked: only if nobody else can have written it. Whoever starts a command in a folder of somebody else's is not
//! to work on that one's database.

use std::{fs::File, io, io::Read as _, path::Path};

/// Its text; or why it is passed over.
pub(super) fn read_unasked(path: &Path) -> io::Result<Result<String, String>> {
    // Before it is opened: to open a pipe waits for whoever writes to it.
    if !std::fs::metadata(path)?.is_file() {
        return Ok(Err("it is no file".to_owned()));
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

    let us = rustix::process::geteuid().as_raw();
    let (owner, group, mode) = (file.uid(), file.gid(), file.mode());
    if owner != us && owner != 0 {
        return Some(format!("it belongs to another user (uid {owner})"));
    }
    let by_group = mode & 0o020 != 0 && group != owner;
    (by_group || mode & 0o002 != 0).then(|| format!("others may write it (mode {:o})", mode & 0o777))
}

#[cfg(not(unix))]
fn distrust(_: &std::fs::Metadata) -> Option<String> {
    None
}
