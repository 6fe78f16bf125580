//! Parses the imports of a file from its text: paths that begin with `crate`, `super` or `self`, in `use` items or in expressions. The
//! paths are followed through the re-exports of rooms. Every module with a `mod.rs` counts as a room (see ARCHITECTURE.md).

use std::collections::{BTreeMap, BTreeSet};

use super::first_word;

/// Files of a crate by their path below `src`, without comments and unit tests.
pub(super) struct Tree(BTreeMap<String, String>);

impl Tree {
    pub(super) fn new(files: BTreeMap<String, String>) -> Self {
        Self(files)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the paths that a file names, starting at the crate root.
    pub(super) fn paths(&self, file: &str) -> Vec<Vec<String>> {
        let code = if is_room(file) { without_exports(&self.0[file]) } else { self.0[file].clone() };
        named(&code).into_iter().filter_map(|path| absolute(&module(file), &path)).filter(|path| !path.is_empty()).collect()
    }

    /// Returns the other files that define names used by a file.
    pub(super) fn needs(&self, file: &str) -> BTreeSet<String> {
        let found = self.paths(file).into_iter().filter_map(|path| self.defines(&path, 0));
        found.filter(|other| other != file && other != "lib.rs").collect()
    }

    fn file(&self, module: &[String]) -> Option<&str> {
        let (flat, room) = (format!("{}.rs", module.join("/")), format!("{}/mod.rs", module.join("/")));
        [flat, room].iter().find_map(|name| self.0.get_key_value(name)).map(|(name, _)| name.as_str())
    }

    /// Returns the file of the deepest module on the path. Re-exports of a room are resolved.
    fn defines(&self, path: &[String], depth: usize) -> Option<String> {
        let (length, file) = (1..=path.len()).rev().find_map(|length| Some((length, self.file(&path[..length])?)))?;
        let Some(item) = path.get(length).filter(|_| is_room(file) && depth < 5) else { return Some(file.to_owned()) };
        let exported = exports(&self.0[file]).into_iter().filter_map(|export| absolute(&module(file), &export));
        let of = exported.into_iter().find(|export| export.last() == Some(item) && export != path);
        of.and_then(|export| self.defines(&export, depth + 1)).or_else(|| Some(file.to_owned()))
    }
}

fn is_room(file: &str) -> bool {
    file.ends_with("/mod.rs") || file == "lib.rs"
}

fn module(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

fn absolute(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut at = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "super" => module.split_last()?.1.to_vec(),
        _ => module.to_vec(),
    };
    at.extend(path[1..].iter().filter(|word| *word != "self").cloned());
    Some(at)
}

/// Splits code into its re-exports and the rest. A re-export is a `use` item that begins with `pub`.
fn split_exports(code: &str) -> (String, String) {
    let (mut exports, mut rest, mut inside) = (String::new(), String::new(), false);
    for line in code.lines() {
        let begins = line.trim_start();
        inside |= begins.starts_with("pub") && begins.split_whitespace().take(3).any(|word| word == "use");
        let to = if inside { &mut exports } else { &mut rest };
        to.push_str(line);
        to.push('\n');
        inside &= !line.trim_end().ends_with(';');
    }
    (exports, rest)
}

fn exports(code: &str) -> Vec<Vec<String>> {
    named(&split_exports(code).0)
}

fn without_exports(code: &str) -> String {
    split_exports(code).1
}

/// Returns every path in the text that begins with `crate`, `super` or `self`. Each name in braces becomes a path of its own.
pub(super) fn named(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for first in ["crate", "super", "self"] {
        for (at, _) in code.match_indices(&format!("{first}::")) {
            let begins = !code[..at].ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | '$' | ':'));
            // `pub(in crate::room)` imports nothing.
            if begins && !code[..at].ends_with("(in ") {
                follow(vec![first.to_owned()], &code[at + first.len() + 2..], &mut paths);
            }
        }
    }
    paths
}

/// Parses the text after `before::` and adds its paths to `paths`. Returns the length of the parsed text.
fn follow(before: Vec<String>, text: &str, paths: &mut Vec<Vec<String>>) -> usize {
    let word = first_word(text);
    if !word.is_empty() {
        let mut path = before;
        path.push(word.clone());
        return match text[word.len()..].strip_prefix("::") {
            Some(rest) if rest.starts_with('{') || !first_word(rest).is_empty() => word.len() + 2 + follow(path, rest, paths),
            _ => {
                paths.push(path);
                word.len()
            }
        };
    }
    if !text.starts_with('{') {
        // The path ends with `*` or belongs to an expression.
        paths.push(before);
        return 0;
    }
    let mut at = 1;
    while let Some(letter) = text[at..].chars().next() {
        match letter {
            '}' => return at + 1,
            letter if letter.is_alphanumeric() || letter == '_' || letter == '*' => {
                let is_renamed = text[at..].starts_with("as ");
                at += if is_renamed { 3 } else { follow(before.clone(), &text[at..], paths).max(1) };
                if is_renamed {
                    at += first_word(&text[at..]).len();
                }
            }
            letter => at += letter.len_utf8(),
        }
    }
    at
}

#[test]
fn the_scanner_of_imports_finds_them_all() {
    let text = "use crate::{bell::Bell as _, claim::{Claimed, lanes::{self, Lanes}},\n    wake::Sleep,\n};\nfn f() { crate::embedded::start(); \
                $crate::cli::main(); mycrate::x(); self::y::<u8>() } use super::*;";
    let found: Vec<String> = named(text).iter().map(|path| path.join("::")).collect();
    let expected = [
        "crate::bell::Bell",
        "crate::claim::Claimed",
        "crate::claim::lanes::self",
        "crate::claim::lanes::Lanes",
        "crate::wake::Sleep",
        "crate::embedded::start",
        "super",
        "self::y",
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_export_of_a_room_belongs_to_the_file_that_defines_it() {
    let files = [
        ("a/mod.rs", "mod b;\npub(crate) use self::{b::{One,\n  Two as Second}, c::Three};\nuse self::b::One;\npub struct Own;"),
        ("a/b.rs", "use super::{Three, Own}; pub struct One; pub struct Two;"),
        ("a/c.rs", "use super::b; use crate::a::One; pub struct Three;"),
        ("d.rs", "use crate::{a::{Three, Own}, a::b::Two};"),
    ];
    let tree = Tree::new(files.map(|(path, text)| (path.to_owned(), text.to_owned())).into());
    let needs = |file: &str| tree.needs(file).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(
        [needs("a/mod.rs"), needs("a/b.rs"), needs("a/c.rs"), needs("d.rs")],
        ["a/b.rs", "a/c.rs a/mod.rs", "a/b.rs", "a/b.rs a/c.rs a/mod.rs"]
    );
}
