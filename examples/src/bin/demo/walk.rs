//! Finds all files in a folder, except files that git ignores. Finds each file once and opens no file.

use std::{
    collections::HashSet,
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use ignore::{DirEntry, WalkBuilder};

/// Files found by [`walk`], and the numbers of skipped entries.
#[derive(Default)]
pub(crate) struct FilesFound {
    /// Files to read, relative to the folder and encoded by [`text`].
    pub(crate) files: Vec<String>,
    /// Number of skipped symbolic links. A link's target is found only if the target itself is in the walked folder.
    pub(crate) links: usize,
    /// Number of additional hard links to files already found. Hard links waste no space.
    pub(crate) names: usize,
    /// Number of pipes, sockets and devices, which are never opened.
    pub(crate) special: usize,
    /// Folders that could not be listed, with the error.
    pub(crate) unlisted: Vec<String>,
}

/// Finds the files in `folder`. Does not apply the `.gitignore` files of parent folders, because the user has named `folder` explicitly.
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
        // A dangling link counts as an unreadable file and gets a job like every other file.
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

/// Returns the device number and the inode number of a file that has several hard links, otherwise `None`.
#[cfg(unix)]
fn other_name(data: &fs::Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    (data.nlink() > 1).then(|| (data.dev(), data.ino()))
}

#[cfg(not(unix))]
fn other_name(_: &fs::Metadata) -> Option<(u64, u64)> {
    None
}

/// Encodes a path as text that is valid in JSON and on a terminal. `%`, control characters and invalid UTF-8 bytes become `%XX`.
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

/// Decodes a path encoded by [`text`].
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

/// Replaces control characters in a message with spaces, so that the message cannot control the terminal.
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
