//! Checks that the program runs every public operation. Each documented method, function and SQL function must be called by some module
//! of this directory. Exceptions are listed with a reason.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Returns the root directory of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Types whose methods do not use the server. The methods behave the same with every server, and have other tests.
const PURE: [(&str, &str); 16] = [
    ("Backoff", "computes retry delays"),
    ("JobType", "implemented by `#[job(..)]`"),
    ("Options", "written by `#[job(..)]`; the jobs here use most of it"),
    ("Unique", "as above"),
    ("UniqueKey", "a string made of fields"),
    ("StateKey", "written by `state(..)`"),
    ("Retain", "an enum"),
    ("Overlap", "an enum; `schedule` passes each variant to the store"),
    ("Missed", "as above"),
    ("Error", "accessors of an error"),
    ("Histogram", "adds and evaluates counts in memory"),
    ("Registry", "the job types of a binary, which a worker collects by itself"),
    ("Registration", "as above"),
    ("JobState", "names of states"),
    ("Failure", "accessors of a handler's error"),
    ("OldPayload", "the text passed to an upgrade"),
];

/// Functions that this program cannot run, or that are not operations.
const EXCEPTIONS: [(&str, &str); 12] = [
    ("embedded", "starts a server, then connects as `connect` does; it has tests of its own"),
    ("from_env", "reads the environment, then connects as `connect` does"),
    ("linked", "the types of a binary; the worker here registers its types one by one, with the same result"),
    ("logs_at", "as `logs`, with another level"),
    ("log_panics", "a hook of the whole process"),
    ("meter", "metrics for OpenTelemetry, based on the counters that `history` reads"),
    ("verdict", "a pure decision"),
    ("most_together", "as above"),
    ("message", "the text of an error"),
    ("shutting_down", "state of the process; `shutdown` has tests of its own"),
    ("supersede", "another option of a schedule, written like all others"),
    ("serve_over", "the dashboard of multiple stores, with the queries played here; it has tests of its own"),
];

fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                found.push((entry.clone(), fs::read_to_string(&entry).unwrap()));
            }
        }
    }
    found
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn name(text: &str) -> &str {
    text.split(|letter| !is_name(letter)).next().unwrap_or_default()
}

/// Returns the names in the `pub use` items of a module file, except names hidden from the documentation.
fn public_names(file: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let mut names = BTreeSet::new();
    let mut lines = text.lines();
    let mut is_hidden = false;
    while let Some(line) = lines.next() {
        if line == "#[doc(hidden)]" {
            is_hidden = true;
        } else if let Some(first) = line.strip_prefix("pub use ") {
            let mut whole = first.to_owned();
            while !whole.contains(';') {
                whole.push_str(lines.next().unwrap());
            }
            if !is_hidden {
                names.extend(whole.split(|letter| !is_name(letter)).map(str::to_owned));
            }
            is_hidden = false;
        } else if line.starts_with("pub mod") {
            // The contents of a hidden module are not public. The `pub use` lines in the module are indented, so they are not matched.
            is_hidden = false;
        }
    }
    names
}

/// Returns the name of the type or trait, if the line begins an inherent `impl` or a `pub trait`.
fn subject(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub trait ").or_else(|| {
        let rest = line.strip_prefix("impl")?;
        let rest = match rest.strip_prefix('<') {
            // Skips the generic parameters of the `impl`.
            Some(rest) => {
                let mut depth = 1;
                let end = rest.char_indices().find(|(at, letter)| {
                    depth += match letter {
                        '<' => 1,
                        '>' if !rest[..*at].ends_with('-') => -1,
                        _ => 0,
                    };
                    depth == 0
                })?;
                &rest[end.0 + 1..]
            }
            None => rest,
        };
        let rest = rest.trim_start();
        // An implementation of a foreign trait adds no operations.
        if rest.contains(" for ") { None } else { Some(rest) }
    })?;
    Some(name(rest))
}

/// Returns the public functions of a crate, each with its type. A free function has the crate's name instead. Methods are included if one
/// of the modules re-exports their type, and free functions if one of the modules re-exports them.
fn operations(crate_name: &str, modules: &[&str]) -> BTreeMap<String, String> {
    let public_names: BTreeSet<String> = modules.iter().flat_map(|module| public_names(&format!("{crate_name}/src/{module}"))).collect();
    let mut found = BTreeMap::new();
    for (path, text) in files(&root().join(crate_name).join("src")) {
        let path = path.strip_prefix(root().join(crate_name)).unwrap().to_str().unwrap().to_owned();
        if ["/testing/", "/cli/", "/attempt/", "/private"].iter().any(|part| path.contains(part)) {
            continue;
        }
        let (mut of, mut is_hidden, mut is_trait) = (None, false, false);
        for line in text.lines().take_while(|line| *line != "#[cfg(test)]") {
            if let Some(subject) = subject(line) {
                (of, is_trait) = (Some(subject), line.starts_with("pub trait"));
            } else if line.starts_with('}') {
                (of, is_trait) = (None, false);
            } else if line.starts_with("macro_rules! option_methods") || line.starts_with("macro_rules! enqueue_methods") {
                of = Some("Enqueue");
            }
            let trimmed = line.trim_start();
            // The attribute applies to the next line that is neither an attribute nor a comment.
            let was_hidden = is_hidden;
            if trimmed.starts_with("#[doc(hidden)]") {
                is_hidden = true;
            } else if !trimmed.starts_with(['#', '/']) {
                is_hidden = false;
            }
            let declared = trimmed.strip_prefix("pub ").or_else(|| trimmed.strip_prefix("fn ").filter(|_| is_trait).map(|_| trimmed));
            let Some(declared) = declared else { continue };
            let declared = ["async ", "const "].iter().fold(declared, |text, word| text.strip_prefix(word).unwrap_or(text));
            let Some(function) = declared.strip_prefix("fn ").map(name) else { continue };
            let is_indented = line.starts_with(' ');
            let is_reached = if is_indented { of.is_some_and(|of| public_names.contains(of)) } else { public_names.contains(function) };
            if is_reached && !was_hidden && function != "$name" && !function.is_empty() {
                found.insert(function.to_owned(), of.filter(|_| is_indented).unwrap_or(crate_name).to_owned());
            }
        }
    }
    found
}

/// Returns the source text of all modules except `main` and this one.
fn played() -> String {
    let played = files(&root().join("tests/conformance/src"));
    played.into_iter().filter(|(path, _)| !path.ends_with("covered.rs") && !path.ends_with("main.rs")).map(|(_, text)| text).collect()
}

/// Returns whether the text calls or implements a function of this name.
fn is_named(played: &str, function: &str) -> bool {
    played.match_indices(function).any(|(at, _)| {
        let (before, after) = (&played[..at], &played[at + function.len()..]);
        !before.ends_with(is_name) && (after.starts_with('(') || after.starts_with("::<") || before.ends_with("::"))
    })
}

/// Files that re-export the types of the public modules.
const API: [&str; 8] = [
    "api/batch.rs",
    "api/drivers.rs",
    "api/durable.rs",
    "api/flow.rs",
    "api/middleware.rs",
    "api/options.rs",
    "api/registry.rs",
    "api/wait.rs",
];

#[test]
fn every_public_operation_is_played() {
    let played = played();
    let mut core = vec!["lib.rs", "operate/mod.rs", "schedule/mod.rs", "schema/migrate.rs", "stores/mod.rs"];
    core.extend(API);
    let worker = ["lib.rs", "dashboard/mod.rs"];
    let mut all = operations("queue-core", &core);
    // Adds the functions of public modules, which `operations` does not find.
    for (function, of) in [("status", "migrate"), ("verify", "migrate"), ("print", "migrate"), ("service", "dashboard")] {
        all.insert(function.to_owned(), of.to_owned());
    }
    all.extend(operations("queue-worker", &worker));
    assert!(all.len() > 200, "only {} operations were found: {:?}", all.len(), all.keys());
    for known in ["enqueue", "wait", "list", "create", "signal", "begin", "map", "register", "connect", "apply_to", "after", "read_from"] {
        assert!(all.contains_key(known), "{known} is not among {:?}", all.keys());
    }
    let is_exception =
        |function: &str, of: &str| PURE.iter().any(|(pure, _)| *pure == of) || EXCEPTIONS.iter().any(|(name, _)| *name == function);
    let missing: Vec<String> = all
        .iter()
        .filter(|(function, of)| !is_exception(function, of) && !is_named(&played, function))
        .map(|(function, of)| format!("{of}::{function}"))
        .collect();
    assert!(
        missing.is_empty(),
        "play these in tests/conformance/src, or list them as exceptions with a reason:\n  {}",
        missing.join("\n  ")
    );
    for (name, _) in EXCEPTIONS {
        assert!(all.contains_key(name) && !is_named(&played, name), "{name} is played, and no longer an exception");
    }
}

/// Checks that every setting of a worker is used. A macro generates the methods, so `operations` cannot find them.
#[test]
fn every_worker_setting_is_used() {
    let played = played();
    let settings = fs::read_to_string(root().join("queue-worker/src/live/settings.rs")).unwrap();
    let names = settings.lines().filter(|line| line.contains("(\"QUEUE_")).map(|line| name(line.trim_start()));
    let missing: Vec<&str> = names.filter(|setting| !played.contains(&format!(".{setting}("))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Checks that every documented SQL function is called.
#[test]
fn every_sql_function_that_is_documented_is_played() {
    let played = played();
    let migrations = files_of(&root().join("queue-core/migrations")).concat();
    let documents = files_of(&root().join("docs")).concat();
    let functions: BTreeSet<&str> = documents
        .match_indices("queue.")
        .map(|(at, word)| name(&documents[at + word.len()..]))
        .filter(|function| {
            documents.contains(&format!("queue.{function}(")) && migrations.contains(&format!("create function queue.{function}("))
        })
        .collect();
    assert!(functions.len() > 40, "{functions:?}");
    let missing: Vec<&str> = functions.into_iter().filter(|function| !played.contains(&format!("queue.{function}("))).collect();
    assert!(missing.is_empty(), "play these in tests/conformance/src/sql.rs: {missing:?}");
}

fn files_of(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|path| fs::read_to_string(path).unwrap()).collect()
}
