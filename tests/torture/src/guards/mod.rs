//! Every guard of every statement that writes, and what the statement is without it: a condition, a lock, an order, a limit, an attempt
//! counted. Each is marked beside the SQL (`marker`). `cargo guards` removes them in turn, and a test must fail (`docs/RELIABILITY.md`).

mod marker;
mod noticed;
mod remove;
mod suite;
#[cfg(test)]
mod tests;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};

use crate::root;

pub use marker::Guard;
use marker::code;
pub use remove::main;

/// Where statements stand, from the root of the workspace.
const FOLDERS: [&str; 3] = ["queue-core/migrations", "queue-core/sql", "queue-worker/sql"];

/// A file of SQL: one statement, or the functions and tables of a migration.
#[derive(Debug)]
pub struct Statement {
    /// The name of its file.
    pub file: String,
    /// All of it.
    pub text: String,
    /// What protects it.
    pub guards: Vec<Guard>,
    /// Whether it is applied once, not prepared.
    pub is_migration: bool,
}

/// All of them, those without guards too.
///
/// # Errors
/// Names the file and the line of a marker that cannot be read.
pub fn statements() -> Result<Vec<Statement>> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        let folder = root().join(folder);
        let mut paths: Vec<PathBuf> = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "sql")) {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(path)?;
            let guards = marker::parse(&text).with_context(|| file.clone())?;
            found.push(Statement { file, text, guards, is_migration: folder.ends_with("migrations") });
        }
    }
    Ok(found)
}

impl Statement {
    /// The tests that are to notice that a guard is gone, by parts of their names: one run each, in this order. Empty if nobody says.
    pub fn noticed_by(&self, guard: &Guard) -> &'static [&'static str] {
        noticed::by(guard.object.as_deref().unwrap_or(&self.file))
    }

    /// Its lines without comments.
    pub fn code(&self) -> impl Iterator<Item = &str> {
        self.text.lines().map(code).filter(|line| !line.trim().is_empty())
    }
}
