//! Every guard of every statement that writes: a condition, a lock, an order, a limit, an attempt counted. What a statement is without one
//! is a mutation of it, and stands in `tests/torture/guards` (`mutation`). `cargo guards` applies them in turn, and a test must fail
//! (`docs/RELIABILITY.md`).

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

/// The folders of statements, from the root of the workspace.
const FOLDERS: [&str; 3] = ["queue-core/migrations", "queue-core/sql", "queue-worker/sql"];

/// A file of SQL: one statement, or the functions and tables of a migration.
#[derive(Debug)]
pub struct Statement {
    /// The name of its file.
    pub file: String,
    /// The whole text of its file.
    pub text: String,
    /// One for each guard.
    pub mutations: Vec<Mutation>,
    /// Whether it is applied once, not prepared.
    pub is_migration: bool,
}

/// Reads all statements, those without guards too.
///
/// # Errors
/// Names the file and the line of a mutation that cannot be read.
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

/// Returns the folder in which the mutations stand, in the folders and under the names of their statements.
fn mutations_folder() -> PathBuf {
    root().join("tests/torture/guards")
}

/// Reads the mutations of the statement at this path.
fn mutations_of(path: &Path) -> Result<Vec<Mutation>> {
    let file = mutations_folder().join(path.strip_prefix(root())?).with_extension("diff");
    if file.exists() { mutation::parse(&fs::read_to_string(file)?) } else { Ok(Vec::new()) }
}

impl Statement {
    /// Returns the tests that are to fail without a guard, by parts of their names: one run each, in this order. Empty if none is named.
    pub fn noticed_by(&self, mutation: &Mutation) -> &'static [&'static str] {
        noticed::by(mutation.object.as_deref().unwrap_or(&self.file))
    }

    /// Returns its lines without comments.
    pub fn code(&self) -> impl Iterator<Item = &str> {
        self.text.lines().map(code).filter(|line| !line.trim().is_empty())
    }
}
