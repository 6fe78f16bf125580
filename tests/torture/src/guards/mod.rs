//! Guards of write statements: conditions, locks, orders, limits and attempt counts. A mutation is a statement without one of its guards.
//! The mutations are in `tests/torture/guards` (see `mutation`). `cargo guards` applies the mutations in turn, and a test must fail each
//! time (`docs/RELIABILITY.md`).

mod mutation;
mod noticed;
mod remove;
mod suite;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::root;

pub use mutation::Mutation;
use mutation::code;
pub use remove::main;

/// Directories that contain statements, relative to the workspace root.
const FOLDERS: [&str; 3] = ["queue-core/migrations", "queue-core/sql", "queue-worker/sql"];

/// SQL file that contains one statement, or the functions and tables of a migration.
#[derive(Debug)]
pub struct Statement {
    /// Path of the SQL file.
    pub file: String,
    /// Contents of the SQL file.
    pub text: String,
    /// Mutations of the statement, one per guard.
    pub mutations: Vec<Mutation>,
    /// Whether the file is a migration, which is applied once instead of prepared.
    pub is_migration: bool,
}

/// Reads all statements, including statements without guards.
///
/// # Errors
/// Returns an error if a mutation cannot be parsed. The error names the file and the line.
pub fn statements() -> Result<Vec<Statement>> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        let folder = root().join(folder);
        let mut paths: Vec<PathBuf> = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "sql")) {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(path)?;
            let mutations = mutations_of(path).with_context(|| file.clone())?;
            found.push(Statement { file, text, mutations, is_migration: folder.ends_with("migrations") });
        }
    }
    Ok(found)
}

/// Returns the directory of the mutations, whose layout mirrors that of the statements.
fn mutations_folder() -> PathBuf {
    root().join("tests/torture/guards")
}

/// Reads the mutations of the statement at `path`.
fn mutations_of(path: &Path) -> Result<Vec<Mutation>> {
    let file = mutations_folder().join(path.strip_prefix(root())?).with_extension("diff");
    if file.exists() { mutation::parse(&fs::read_to_string(file)?) } else { Ok(Vec::new()) }
}

impl Statement {
    /// Returns filters for the tests that must detect the mutation: without the guard, at least one selected test must fail. The filters
    /// are applied one after another. The result is empty if no test is listed.
    pub fn noticed_by(&self, mutation: &Mutation) -> &'static [&'static str] {
        noticed::tests_for(mutation.object.as_deref().unwrap_or(&self.file))
    }

    /// Returns the statement's lines, with comments and blank lines removed.
    pub fn code(&self) -> impl Iterator<Item = &str> {
        self.text.lines().map(code).filter(|line| !line.trim().is_empty())
    }
}
