//! The house rules of ARCHITECTURE.md, read off the files themselves: boundaries that nothing checks erode.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The folders that are ours.
const MEMBERS: [&str; 7] = ["queue-core", "queue-macros", "queue-worker", "queue-worker/embedded", "examples", "tests", "tests/bench"];

/// The libraries: what users link.
const LIBRARIES: [&str; 4] = ["queue-core", "queue-macros", "queue-worker", "queue-worker/embedded"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file of this extension below the folder, as a path from the root, with its text. What a build has made is nobody's.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let walk = walkdir::WalkDir::new(root().join(folder)).sort_by_file_name();
    let walk = walk.into_iter().filter_entry(|entry| entry.file_name() != "target");
    let found = walk.map(|entry| entry.unwrap().into_path()).filter(|path| path.extension().is_some_and(|found| found == extension));
    let named =
        |path: PathBuf| (path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/"), fs::read_to_string(path).unwrap());
    found.map(named).collect()
}

/// A member inside another's folder is read with it.
fn sources() -> impl Iterator<Item = (String, String)> {
    MEMBERS.into_iter().filter(|member| !member.contains('/')).flat_map(|member| files(member, "rs"))
}

/// What the libraries say at run time: no tests, no comments.
fn library_code() -> impl Iterator<Item = (String, String)> {
    let of = |member: &str| files(&format!("{member}/src"), "rs");
    LIBRARIES.into_iter().flat_map(of).filter(|(path, _)| !path.ends_with("/tests.rs")).map(|(path, text)| (path, code(&text)))
}

/// The text up to the unit tests, which stand last, without whole-line comments; the lines keep their numbers.
fn code(text: &str) -> String {
    let comment = |line: &str| line.trim_start().starts_with("//");
    text.lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .map(|line| if comment(line) { "\n".to_owned() } else { format!("{line}\n") })
        .collect()
}

fn assert_none(faults: &[String], rule: &str) {
    assert!(faults.is_empty(), "{rule}:\n  {}", faults.join("\n  "));
}

#[test]
fn no_file_is_longer_than_400_lines() {
    let sql = LIBRARIES.into_iter().flat_map(|member| files(member, "sql"));
    let long = sources().chain(sql).map(|(path, text)| (path, text.lines().count())).filter(|(_, lines)| *lines > 400);
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

/// Of a trait: ends with a semicolon before any body begins.
fn is_declaration(lines: &[&str]) -> bool {
    lines.iter().find(|line| line.ends_with('{') || line.ends_with(';')).is_some_and(|line| line.ends_with(';'))
}

/// The floors as ARCHITECTURE.md draws them, from the top: a module stands in the first word or words of a line, before its description.
fn floors() -> BTreeMap<String, usize> {
    let text = read("ARCHITECTURE.md");
    let drawing = text.split("```text\n").find(|block| block.starts_with("main\n")).expect("ARCHITECTURE.md draws the floors");
    let lines = drawing.lines().take_while(|line| *line != "```").map(|line| line.split("  ").next().unwrap_or_default());
    lines.enumerate().flat_map(|(floor, names)| names.split(' ').map(move |name| (name.to_owned(), floor)).collect::<Vec<_>>()).collect()
}

#[test]
fn imports_go_down_only() {
    let floors = floors();
    let (mut faults, mut met) = (Vec::new(), BTreeSet::new());
    for (path, text) in files("queue-worker/src", "rs").into_iter().filter(|(path, _)| !path.ends_with("/lib.rs")) {
        let inside = path.strip_prefix("queue-worker/src/").unwrap();
        let module = inside.split('/').next().unwrap().trim_end_matches(".rs");
        let Some(floor) = floors.get(module) else {
            faults.push(format!("{path}: ARCHITECTURE.md knows no floor for `{module}`"));
            continue;
        };
        met.insert(module.to_owned());
        for name in imported(&code(&text)).into_iter().filter(|name| name != module) {
            match floors.get(&name) {
                Some(other) if other > floor => {}
                Some(_) => faults.push(format!("{path} imports `{name}`, which does not stand below it")),
                None => faults.push(format!("{path} imports `crate::{name}`, which is no module of a floor")),
            }
        }
        let is_top = !inside.contains('/') || inside.ends_with("/mod.rs");
        if is_top && code(&text).contains("super::") && !inside.contains("/mod.rs") {
            faults.push(format!("{path} names `super::`: say `crate::`"));
        }
        if code(&text).contains("super::super::") {
            faults.push(format!("{path} names `super::super::`: say `crate::`"));
        }
    }
    let unknown: Vec<&String> = floors.keys().filter(|name| !met.contains(*name)).collect();
    assert!(unknown.is_empty(), "ARCHITECTURE.md draws {unknown:?}, which are not there");
    assert!(met.len() >= 15, "only {met:?} were checked");
    assert_none(&faults, "imports go down only");
}

/// The first names after `crate::` and in `crate::{..}`, in imports and in paths.
fn imported(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | '$' | ':')) {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.push(first_word(rest));
            continue;
        };
        let mut depth = 1;
        let mut begins = true;
        for (at, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' => begins = depth == 1,
                letter if begins && !letter.is_whitespace() => {
                    names.push(first_word(&group[at..]));
                    begins = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

#[test]
fn the_scanner_of_imports_finds_them_all() {
    let text = "use crate::{bell::Bell, claim::{Claimed, Lanes},\n    wake::Sleep,\n};\nfn f() { crate::embedded::start(); $crate::cli::main(); mycrate::x() }";
    assert_eq!(imported(text), ["bell", "claim", "wake", "embedded"]);
}

#[test]
fn dispatch_never_touches_the_database() {
    let dispatch = code(&read("queue-worker/src/dispatch.rs"));
    for word in ["sqlx", "connect", "Link", "include_str", "PgConnection", "PgPool", "pool()"] {
        assert!(!dispatch.contains(word), "dispatch.rs names `{word}`");
    }
}

#[test]
fn f29_nothing_of_the_protocol_asks_the_clock_of_the_worker() {
    let outside = ["queue-worker/src/cli/", "queue-worker/embedded/"];
    let protocol =
        library_code().filter(|(path, _)| path.starts_with("queue-worker/") && !outside.iter().any(|part| path.starts_with(part)));
    let (mut asked, mut seen) = (Vec::new(), 0);
    for (path, text) in protocol {
        seen += 1;
        asked.extend(
            ["SystemTime", "Utc::now", "Local::now"].iter().filter(|clock| text.contains(**clock)).map(|clock| format!("{path}: {clock}")),
        );
    }
    assert!(seen > 20, "only {seen} files were read");
    assert_none(&asked, "take the time from the database, or measure with `Instant`");
}

#[test]
fn only_retry_decides_between_another_try_and_a_dead_letter() {
    let mut faults = Vec::new();
    let mut patterns = 0;
    for (path, text) in library_code().filter(|(path, _)| path != "queue-core/src/retry.rs") {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.contains("Verdict::Retry") || line.contains("Verdict::Dead"))
        {
            // On the left of an arrow, or in a `matches!`, it is looked at, not made.
            let last = line.rfind("Verdict::Retry").max(line.rfind("Verdict::Dead")).unwrap_or_default();
            if line[last..].contains("=>") || line.contains("matches!(") {
                patterns += 1;
            } else {
                faults.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(patterns > 0, "the settle loop looks at verdicts");
    assert_none(&faults, "ask `queue_core::verdict`");
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
fn library_code_has_no_unwrap() {
    let mut faults = Vec::new();
    for (path, text) in library_code() {
        let lines =
            text.lines().enumerate().filter(|(_, line)| line.contains(".unwrap()") || line.contains("todo!(") || line.contains("dbg!("));
        faults.extend(lines.map(|(number, line)| format!("{path}:{}: {}", number + 1, line.trim())));
    }
    assert_none(&faults, "return an error, or `expect(\"why it cannot happen\")`");
}

/// Our tables, views and functions: never to be named without their schema.
fn names_of_ours() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, text) in files("queue-core/migrations", "sql") {
        for kind in ["create table queue.", "create view queue.", "create function queue."] {
            names.extend(text.match_indices(kind).map(|(at, _)| first_word(&text[at + kind.len()..])).filter(|name| !name.is_empty()));
        }
    }
    assert!(names.contains("ready") && names.contains("jobs") && names.contains("wake"), "{names:?}");
    names
}

#[test]
fn every_sql_file_is_loaded_and_explained_and_names_its_tables_in_full() {
    let code: String = library_code().map(|(_, text)| text).collect();
    let ours = names_of_ours();
    let mut faults = Vec::new();
    let statements: Vec<(String, String)> = ["queue-core/sql", "queue-core/testing", "queue-worker/sql", "queue-core/migrations"]
        .into_iter()
        .flat_map(|folder| files(folder, "sql"))
        .collect();
    assert!(statements.len() > 25);
    for (path, text) in statements {
        let loaded = format!("/{}\")", path.split_once('/').unwrap().1);
        if !code.contains(&loaded) {
            faults.push(format!("{path} is loaded nowhere"));
        }
        if !text.starts_with("-- ") || text.starts_with("-- \n") {
            faults.push(format!("{path} does not begin with a header"));
        }
        if text.lines().any(|line| line.chars().count() > 150) {
            faults.push(format!("{path} has lines of more than 150 characters"));
        }
        faults.extend(unqualified(&text, &ours).into_iter().map(|word| format!("{path}: `{word}` without its schema")));
    }
    assert_none(&faults, "one statement, one file, every name qualified");
}

/// Names of ours that follow a word after which a table stands, or are called as functions, without `queue.`.
fn unqualified(text: &str, ours: &BTreeSet<String>) -> Vec<String> {
    let text: String = text.lines().map(|line| line.split("--").next().unwrap_or_default().to_owned() + "\n").collect();
    let mut found = Vec::new();
    let mut last = "";
    for word in text.split_whitespace() {
        let name = first_word(word.trim_start_matches('('));
        let before = std::mem::replace(&mut last, word);
        let as_table = matches!(before, "from" | "join" | "into" | "update" | "using" | "table") && !word.contains(&format!("{name}."));
        let as_call = word.trim_start_matches('(').strip_prefix(&name).is_some_and(|rest| rest.starts_with('('));
        // What a dynamic statement is executed with is a variable.
        let as_argument = before == "using" && word.ends_with(';');
        if ours.contains(&name) && !as_argument && (as_table || as_call) {
            found.push(word.to_owned());
        }
    }
    found
}

#[test]
fn the_scanner_of_statements_finds_unqualified_names() {
    let ours = names_of_ours();
    let text =
        "with taken as (delete from ready where x) insert into lease select next_id() from queue.job j join done on true -- from jobs";
    assert_eq!(unqualified(text, &ours), ["ready", "lease", "next_id()", "done"]);
    assert!(unqualified("select queue.next_id() from queue.ready r using held h", &ours).is_empty());
}
