//! Replaces SQL statements at run time, to verify that a test notices. Only compiled with `--cfg queue_mutants`, with which `cargo guards` builds
//! the tests.

use std::{collections::HashMap, env, fs, sync::LazyLock};

/// Replacement of each statement, by the text of its file: a JSON object in the file that `QUEUE_MUTANTS` names.
static REPLACEMENTS: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let Ok(path) = env::var("QUEUE_MUTANTS") else { return HashMap::new() };
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("QUEUE_MUTANTS {path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("QUEUE_MUTANTS {path}: {error}"))
});

/// Returns the statement to run in this process.
///
/// # Panics
/// Panics if the file cannot be read, because a guard that was not removed must not count as one that no test misses.
pub(crate) fn replacement(statement: &'static str) -> &'static str {
    REPLACEMENTS.get(statement).map_or(statement, String::as_str)
}
