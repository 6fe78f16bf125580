//! Checks the repository against the rules in ARCHITECTURE.md.

mod blocks;
mod book;
mod floors;
mod imports;
mod logs;
mod packages;
mod reference;
mod sql;
mod sql_page;
mod tiers;
mod timing;
mod verdicts;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Crates of the workspace. Some are in the folder of another crate.
const MEMBERS: [&str; 13] = [
    "queue-core",
    "queue-core/cron",
    "queue-macros",
    "queue-worker",
    "queue-worker/embedded",
    "examples",
    "examples/shop/domain",
    "examples/shop/web",
    "examples/shop/worker",
    "tests",
    "tests/bench",
    "tests/conformance",
    "tests/torture",
];

/// Libraries that users link.
const LIBRARIES: [&str; 5] = ["queue-core", "queue-core/cron", "queue-macros", "queue-worker", "queue-worker/embedded"];

/// Documents for readers: pages, and folders of pages.
const DOCUMENTS: [&str; 5] = ["README.md", "CHANGELOG.md", "ARCHITECTURE.md", "docs", "examples"];

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the path and the text of every file with the given extension in `folder` and its subfolders. Paths are relative to the
/// workspace root.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let walk = walkdir::WalkDir::new(root().join(folder)).sort_by_file_name();
    let walk = walk.into_iter().filter_entry(|entry| entry.file_name() != "target");
    let found = walk.map(|entry| entry.unwrap().into_path()).filter(|path| path.extension().is_some_and(|found| found == extension));
    let named =
        |path: PathBuf| (path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/"), fs::read_to_string(path).unwrap());
    found.map(named).collect()
}

/// Returns all Rust files. A crate inside another crate's folder is read together with that crate.
fn sources() -> impl Iterator<Item = (String, String)> {
    MEMBERS.into_iter().filter(|member| !member.contains('/')).flat_map(|member| files(member, "rs"))
}

/// Returns the library code without tests and comments.
fn library_code() -> impl Iterator<Item = (String, String)> {
    let of = |member: &str| files(&format!("{member}/src"), "rs");
    LIBRARIES
        .into_iter()
        .flat_map(of)
        .filter(|(path, _)| !path.ends_with("/tests.rs") && !path.contains("/tests/"))
        .map(|(path, text)| (path, code(&text)))
}

/// Returns the text before the unit tests at the end of a file. Whole-line comments become empty lines, which keeps line numbers.
fn code(text: &str) -> String {
    let comment = |line: &str| line.trim_start().starts_with("//");
    text.lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .map(|line| if comment(line) { "\n".to_owned() } else { format!("{line}\n") })
        .collect()
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

fn assert_none(faults: &[String], rule: &str) {
    assert!(faults.is_empty(), "{rule}:\n  {}", faults.join("\n  "));
}

#[test]
fn no_file_is_longer_than_400_lines_and_no_migration_than_1000() {
    let sql = LIBRARIES.into_iter().flat_map(|member| files(member, "sql"));
    let most = |path: &str| if path.contains("/migrations/") { 1000 } else { 400 };
    let long = sources().chain(sql).map(|(path, text)| (path, text.lines().count())).filter(|(path, lines)| *lines > most(path));
    assert_none(&long.map(|(path, lines)| format!("{path}: {lines} lines")).collect::<Vec<_>>(), "split it by what it does");
}

#[test]
fn no_function_is_longer_than_70_lines() {
    let mut long = Vec::new();
    let mut seen = 0;
    for (path, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| begins_function(line)) {
            seen += 1;
            let indent = line.len() - line.trim_start().len();
            let ends = |line: &&str| line.len() > indent && line.as_bytes()[indent] == b'}' && line[..indent].trim().is_empty();
            let one_liner = line.ends_with('}') || line.ends_with(';');
            let length = if one_liner { 1 } else { lines[number..].iter().position(ends).map_or(usize::MAX, |end| end + 1) };
            if length > 70 && !is_declaration(&lines[number..]) {
                long.push(format!("{path}:{}: {length} lines", number + 1));
            }
        }
    }
    assert!(seen > 300, "only {seen} functions were found");
    assert_none(&long, "give a part of it a name of its own");
}

fn begins_function(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let modifier = |word: &&str| word.starts_with("pub") || matches!(*word, "async" | "const" | "unsafe" | "extern" | "crate)" | "super)");
    words.by_ref().find(|word| !modifier(word)) == Some("fn")
}

/// Returns whether a trait function has no body. Without a body, a semicolon comes before any brace.
fn is_declaration(lines: &[&str]) -> bool {
    lines.iter().find(|line| line.ends_with('{') || line.ends_with(';')).is_some_and(|line| line.ends_with(';'))
}

#[test]
fn the_macro_names_no_other_crate_than_queue_core() {
    let snapshots = files("queue-macros/src/snapshots", "snap");
    assert!(!snapshots.is_empty());
    let written = files("queue-macros/src", "rs").into_iter().filter(|(path, _)| !path.ends_with("/tests.rs"));
    let mut faults = Vec::new();
    for (path, text) in snapshots.into_iter().chain(written) {
        for (at, _) in text.match_indices("::") {
            let rooted = text[..at].ends_with(|before: char| before.is_whitespace() || "(&<[!".contains(before));
            let name = first_word(&text[at + 2..]);
            if rooted && !name.is_empty() && name != "queue_core" && !text[..at].trim_end().ends_with("Registration::of") {
                faults.push(format!("{path}: `::{name}`"));
            }
        }
        for foreign in ["inventory", "serde_json", "sqlx", "chrono", "tokio", "::std::", "::core::"] {
            if path.contains("/snapshots/") && text.contains(foreign) {
                faults.push(format!("{path}: `{foreign}`"));
            }
        }
    }
    assert_none(&faults, "what the expansion needs, `queue_core::private` exports");
}

#[test]
fn unsafe_code_is_forbidden_everywhere() {
    let manifest = read("Cargo.toml");
    assert!(manifest.contains("\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n"));
    for member in MEMBERS {
        assert!(manifest.contains(&format!("\"{member}\"")), "{member} is a member");
        assert!(read(format!("{member}/Cargo.toml")).contains("\n[lints]\nworkspace = true\n"), "{member} obeys the workspace's lints");
    }
    let listed = manifest.lines().find(|line| line.starts_with("members = ")).unwrap();
    assert_eq!(listed.matches('"').count(), 2 * MEMBERS.len(), "every member is known here: {listed}");
    let words = [concat!("allow(", "unsafe"), concat!("unsafe", " {"), concat!("unsafe", " fn"), concat!("unsafe", " impl")];
    let found = sources().filter(|(_, text)| words.iter().any(|word| text.contains(word)));
    assert_none(&found.map(|(path, _)| path).collect::<Vec<_>>(), "no unsafe code");
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = read("Cargo.toml");
    let section = manifest.split("\n[").find(|section| section.starts_with("workspace.dependencies]")).unwrap();
    let lines = section.lines().skip(1).filter(|line| line.contains(" = ") && !line.contains("path = "));
    let (reasoned, bare): (Vec<&str>, Vec<&str>) =
        lines.partition(|line| line.rsplit_once(" # ").is_some_and(|(_, reason)| !reason.trim().is_empty()));
    assert!(reasoned.len() > 20, "the dependencies were found");
    assert!(bare.is_empty(), "say in a comment what it is for:\n{}", bare.join("\n"));
    for member in MEMBERS {
        let text = read(format!("{member}/Cargo.toml"));
        let sections = text.split("\n[").filter(|section| section.contains("dependencies]"));
        let own: Vec<&str> =
            sections.flat_map(str::lines).filter(|line| line.contains('=') && !line.contains("workspace = true")).collect();
        assert!(own.is_empty(), "{member} has versions of its own: {own:?}");
    }
}

#[test]
fn every_dependency_of_a_member_is_named_in_its_code() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for member in MEMBERS {
        // Skip the folders of other crates inside this crate's folder.
        let below: Vec<String> =
            MEMBERS.into_iter().filter(|other| other.starts_with(&format!("{member}/"))).map(|other| format!("{other}/")).collect();
        let code: String = files(member, "rs")
            .into_iter()
            .filter(|(path, _)| !below.iter().any(|other| path.starts_with(other)))
            .map(|(_, text)| text)
            .collect();
        for line in
            read(format!("{member}/Cargo.toml")).lines().filter(|line| line.contains("workspace = true") && !line.starts_with("workspace"))
        {
            let name = line.split(['.', ' ']).next().unwrap_or_default();
            if MEMBERS_OWN.contains(&name) {
                continue;
            }
            seen += 1;
            let word = name.replace('-', "_");
            let is_named = [format!("{word}::"), format!("use {word}"), format!("{word} as ")].iter().any(|text| code.contains(text));
            faults.extend((!is_named).then(|| format!("{member} needs no `{name}`")));
        }
    }
    assert!(seen > 50, "only {seen} dependencies were found");
    assert_none(&faults, "take it out");
}

/// Keys of a manifest that are inherited from the workspace and are not dependencies.
const MEMBERS_OWN: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];

#[test]
fn library_code_has_no_unwrap() {
    let mut faults = Vec::new();
    for (path, text) in library_code() {
        let lines =
            text.lines().enumerate().filter(|(_, line)| line.contains(".unwrap()") || line.contains("todo!(") || line.contains("dbg!("));
        faults.extend(lines.map(|(number, line)| format!("{path}:{}: {}", number + 1, line.trim())));
    }
    assert_none(&faults, "return an error, or `expect(\"why it cannot happen\")`");
}
