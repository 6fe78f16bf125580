//! Reads the default settings file, but only if no other user can have written the file. A command started in another user's directory
//! must not use that user's database.

use std::{
    fs::{File, metadata, symlink_metadata},
    io,
    io::Read as _,
    path::Path,
};

/// Returns the text of the file, or the reason why the file is ignored.
pub(super) fn read_default_file(path: &Path) -> io::Result<Result<String, String>> {
    // The file type is checked before the file is opened, because opening a pipe would wait for a writer.
    if !metadata(path)?.is_file() {
        return Ok(Err("it is not a regular file".to_owned()));
    }
    // The owner of a symbolic link chooses its target, so the link's owner must be trusted too.
    if let Some(why) = foreign_owner(&symlink_metadata(path)?) {
        return Ok(Err(why));
    }
    let mut file = File::open(path)?;
    if let Some(why) = reason_to_ignore(&file.metadata()?) {
        return Ok(Err(why));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map(|_| Ok(text))
}

/// Returns the reason why a file is not trusted, or `None` for a trusted file. A file is trusted if only the user or root can write to the
/// file. A group whose id equals the owner's id is assumed to have no other members.
#[cfg(unix)]
fn reason_to_ignore(file: &std::fs::Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let (owner, group, mode) = (file.uid(), file.gid(), file.mode());
    let by_group = mode & 0o020 != 0 && group != owner;
    let is_open = by_group || mode & 0o002 != 0;
    foreign_owner(file).or_else(|| is_open.then(|| format!("other users may write it (mode {:o})", mode & 0o777)))
}

#[cfg(unix)]
fn foreign_owner(file: &std::fs::Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let (us, owner) = (rustix::process::geteuid().as_raw(), file.uid());
    (owner != us && owner != 0).then(|| format!("it belongs to another user (uid {owner})"))
}

#[cfg(not(unix))]
fn reason_to_ignore(_: &std::fs::Metadata) -> Option<String> {
    None
}

#[cfg(not(unix))]
fn foreign_owner(_: &std::fs::Metadata) -> Option<String> {
    None
}
