//! Seeded bugs, for checking that the tests find them. Only with the feature `mutants`, which no release is built with: without it this file
//! is not compiled.
//!
//! `QUEUE_BUG` names switches in the code, separated by commas. `QUEUE_MUTANTS` is the path of a JSON file that says how statements are to be
//! rewritten: `[{"file": "settle.sql", "from": "..", "to": ".."}]`.

use std::{
    collections::HashMap,
    env, fs,
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

use serde::Deserialize;

/// Whether this process has the bug of this name.
pub fn bug(name: &str) -> bool {
    static BUGS: OnceLock<Vec<String>> = OnceLock::new();
    let read = || env::var("QUEUE_BUG").unwrap_or_default().split(',').map(str::to_owned).collect();
    BUGS.get_or_init(read).iter().any(|known| known == name)
}

/// With the bug `effects_first`, what a handler wrote in its own transaction is committed before the job's verdict.
pub async fn effects_first(tx: &mut sqlx::PgConnection) -> sqlx::Result<()> {
    if bug("effects_first") {
        sqlx::raw_sql("commit; begin").execute(tx).await?;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    Ok(())
}

/// With the bug `decode_as_a_batch`, one payload that cannot be read takes all that were claimed with it along.
pub fn decode_as_a_batch<'a>(payloads: impl Iterator<Item = &'a mut Option<String>>) {
    if bug("decode_as_a_batch") {
        let payloads: Vec<_> = payloads.collect();
        let readable = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
        if !payloads.iter().all(|payload| payload.as_deref().is_some_and(readable)) {
            for payload in payloads {
                *payload = None;
            }
        }
    }
}

/// One change of one statement.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: String,
    from: String,
    to: String,
}

/// Where statements stand, from the root of the workspace.
const FOLDERS: [&str; 3] = ["queue-worker/sql", "queue-core/sql", "queue-core/migrations"];

/// The statement as it is to be run in this process.
///
/// # Panics
/// When the file of changes cannot be read, or a change does not fit: a bug that is not there must not pass for one that was missed.
pub(crate) fn mutate(statement: &'static str) -> &'static str {
    static EDITED: OnceLock<Mutex<HashMap<String, &'static str>>> = OnceLock::new();
    let edited = EDITED.get_or_init(|| Mutex::new(load())).lock().unwrap_or_else(PoisonError::into_inner);
    edited.get(statement).copied().unwrap_or(statement)
}

/// Each statement that is to be changed, by its text in the file.
fn load() -> HashMap<String, &'static str> {
    let Ok(path) = env::var("QUEUE_MUTANTS") else { return HashMap::new() };
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("QUEUE_MUTANTS {path}: {error}"));
    let edits: Vec<Edit> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("QUEUE_MUTANTS {path}: {error}"));
    let mut changed: HashMap<String, String> = HashMap::new();
    for Edit { file, from, to } in edits {
        let original = find(&file);
        let now = changed.entry(original.clone()).or_insert(original);
        let count = now.matches(&from).count();
        assert!(count == 1, "QUEUE_MUTANTS: {file} has {from:?} {count} times, not once");
        *now = now.replacen(&from, &to, 1);
    }
    changed.into_iter().map(|(original, now)| (original, &*now.leak())).collect()
}

fn find(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let found = FOLDERS.iter().find_map(|folder| fs::read_to_string(root.join(folder).join(file)).ok());
    found.unwrap_or_else(|| panic!("QUEUE_MUTANTS: there is no statement {file}"))
}
