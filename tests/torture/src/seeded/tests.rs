//! Checks that the edits of each seeded bug still apply to their files. Otherwise, only a full run would detect that the text replaced by
//! an edit has changed.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{collections::BTreeMap, fs};

use queue_core::{Store, migrate};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::TestDb;

use super::{BUGS, Bug};
use crate::root;

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn ends(file: &str, ending: &str) -> bool {
    std::path::Path::new(file).extension().is_some_and(|found| found == ending)
}

/// Returns the path and the edited text of each file that a bug changes.
fn with_it(bug: &Bug) -> BTreeMap<&'static str, String> {
    let mut files = BTreeMap::new();
    for edit in bug.edits {
        let text = files.entry(edit.file).or_insert_with(|| read(edit.file));
        *text = edit.of(text).unwrap_or_else(|error| panic!("`{}`: {error}", bug.name));
    }
    files
}

#[test]
fn every_seeded_bug_fits_its_files_exactly_once() {
    let files: Vec<_> = BUGS.iter().flat_map(with_it).collect();
    let code = files.iter().filter(|(file, _)| ends(file, "rs")).count();
    assert!(code >= 5 && files.len() - code >= 7, "{code} of {}", files.len());
}

#[tokio::test]
async fn the_server_takes_every_statement_with_a_seeded_bug() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    for bug in &BUGS {
        for (file, text) in with_it(bug).into_iter().filter(|(file, _)| ends(file, "sql")) {
            let all = migrate::print(Store::default());
            let take = if all.contains(&read(file)) {
                format!("drop schema queue cascade; {}; drop schema queue cascade; {all}", all.replacen(&read(file), &text, 1))
            } else {
                format!("prepare with_it as {text}; deallocate with_it")
            };
            let taken = sqlx::raw_sql(AssertSqlSafe(take)).execute(&mut on).await;
            taken.unwrap_or_else(|error| panic!("`{}` makes no statement of {file}: {error}", bug.name));
        }
    }
    db.finish().await;
}
