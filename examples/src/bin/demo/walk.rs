//! Finds the files of a folder as git sees them, each file once. Reads names and kinds, and opens no file.

use std::{
    collections::HashSet,
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use ignore::{DirEntry, WalkBuilder};

/// What is in a folder.
#[derive(Default)]
pub(crate) struct FilesFound {
    /// Files to be read, relative to the folder, as [`text`].
    pub(crate) files: Vec<String>,
    /// Symbolic links: their targets are found where they are, if at all.
    pub(crate) links: usize,
    /// Further names of files found already (hard links): they waste nothing.
    pub(crate) names: usize,
    /// Pipes, sockets and devices, which are never opened.
    pub(crate) special: usize,
    /// Folders that could not be listed, and why.
    pub(crate) unlisted: Vec<String>,
}

/// Walks `folder`. A `.gitignore` in it is honoured, one above it is not: a folder that is asked for by name is looked at.
pub(crate) fn walk(folder: &Path) -> FilesFound {
    let (mut found, mut known) = (FilesFound::default(), HashSet::new());
    let mut entries = WalkBuilder::new(folder);
    entries.hidden(false).parents(false).ignore(false).require_git(false).same_file_system(true).sort_by_file_name(Ord::cmp);
    for entry in entries.filter_entry(|entry| entry.file_name() != ".git").build() {
        match entry {
            Ok(entry) => found.add(folder, &entry, &mut known),
            Err(error) => found.unlisted.push(printable(&error.to_string())),
        }
    }
    found
}

impl FilesFound {
    fn add(&mut self, folder: &Path, entry: &DirEntry, known: &mut HashSet<(u64, u64)>) {
        let Some(kind) = entry.file_type() else { return };
        if kind.is_dir() {
            return;
        }
        // A link that leads nowhere is a file that cannot be read, and gets its job like every file.
        if kind.is_symlink() && fs::metadata(entry.path()).is_ok() {
            self.links += 1;
        } else if !kind.is_file() && !kind.is_symlink() {
            self.special += 1;
        } else if entry.metadata().is_ok_and(|data| other_name(&data).is_some_and(|file| !known.insert(file))) {
            self.names += 1;
        } else {
            self.files.push(text(entry.path().strip_prefix(folder).unwrap_or(entry.path())));
        }
    }
}

/// Device and inode of a file that has several names.
#[cfg(unix)]
fn other_name(data: &fs::Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    (data.nlink() > 1).then(|| (data.dev(), data.ino()))
}

#[cfg(not(unix))]
fn other_name(_: &fs::Metadata) -> Option<(u64, u64)> {
    None
}

/// A path as text that survives JSON and a terminal: `%`, control characters and what is not UTF-8 are written as `%XX`.
pub(crate) fn text(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_control() || char == '%' { escape(&mut text, char.encode_utf8(&mut [0; 4]).as_bytes()) } else { text.push(char) }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "%{byte:02X}");
    }
}

/// The path that [`text`] wrote.
pub(crate) fn path(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        let escaped = after.get(..2).and_then(|hex| u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok());
        if let (b'%', Some(byte)) = (first, escaped) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    os_string(bytes).into()
}

#[cfg(unix)]
fn os_string(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

#[cfg(not(unix))]
fn os_string(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// A message without what would steer the terminal.
pub(crate) fn printable(message: &str) -> String {
    message.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    use super::*;

    #[test]
    fn every_name_survives_as_text() {
        for name in [&b"src/lib.rs"[..], b"caf\xe9.txt", b"100%.txt", b"%41", b"a\nb\x1b[2J", "größe.txt".as_bytes()] {
            let name = Path::new(OsStr::from_bytes(name));
            assert_eq!(path(&text(name)), name);
        }
        assert_eq!(text(Path::new(OsStr::from_bytes(b"caf\xe9\n"))), "caf%E9%0A");
    }
}
