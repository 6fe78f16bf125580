//! Replaces SQL statements at run time, to verify that tests detect a changed statement. Compiled only with `--cfg queue_mutants`,
//! which `cargo guards` uses to build the tests.

use std::{collections::HashMap, env, fs, sync::LazyLock};

/// Replacement statements, keyed by the text of the original SQL file. Read from the JSON file whose path is in the environment variable
/// `QUEUE_MUTANTS`.
static REPLACEMENTS: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let Ok(path) = env::var("QUEUE_MUTANTS") else { return HashMap::new() };
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("QUEUE_MUTANTS {path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("QUEUE_MUTANTS {path}: {error}"))
});

/// Returns the replacement for `statement`, or `statement` itself if no replacement is configured.
///
/// # Panics
/// Panics if the replacement file cannot be read or parsed. Without the panic, a statement that was not replaced would be reported as a
/// change that no test detects.
pub(crate) fn replacement(statement: &'static str) -> &'static str {
    REPLACEMENTS.get(statement).map_or(statement, String::as_str)
}
