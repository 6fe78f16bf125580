//! Runs other statements than those in the files, to see that a test notices. Only with `--cfg queue_mutants`, which `cargo guards` builds the
//! tests with; else this file is not compiled.

use std::{collections::HashMap, env, fs, sync::LazyLock};

/// What to run instead, by the text in the file: a JSON object in the file that `QUEUE_MUTANTS` names.
static INSTEAD: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let Ok(path) = env::var("QUEUE_MUTANTS") else { return HashMap::new() };
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("QUEUE_MUTANTS {path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("QUEUE_MUTANTS {path}: {error}"))
});

/// The statement as it is to be run in this process.
///
/// # Panics
/// When the file cannot be read: a guard that was not removed must not pass for one that no test misses.
pub(crate) fn instead_of(statement: &'static str) -> &'static str {
    INSTEAD.get(statement).map_or(statement, String::as_str)
}
