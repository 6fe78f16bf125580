//! The seeded bugs of `cargo chaos --bugs`, held against the code: one whose statement or switch has changed would be none, and be missed only
//! by whoever plays them all.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use queue_core::{Store, migrate};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::TestDb;
use torture::seeded::{BUGS, Bug, Is};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    let folders = ["queue-worker/sql", "queue-core/sql", "queue-core/migrations"];
    let found = folders.iter().find_map(|folder| std::fs::read_to_string(root().join(folder).join(file)).ok());
    found.unwrap_or_else(|| panic!("there is no statement {file}"))
}

/// The statements of a bug that is in statements, by their files, as they are with it.
///
/// # Panics
/// When an edit does not fit exactly once, the earlier ones made.
fn statements(bug: &Bug) -> BTreeMap<&'static str, String> {
    let Is::Edits(edits) = bug.is else { return BTreeMap::new() };
    let mut with_it = BTreeMap::new();
    for (file, from, to) in edits {
        let text: &mut String = with_it.entry(*file).or_insert_with(|| read(file));
        assert_eq!(text.matches(from).count(), 1, "`{}`: {file} has {from:?} not once", bug.name);
        assert_ne!(from, to, "`{}` changes nothing in {file}", bug.name);
        *text = text.replacen(from, to, 1);
    }
    with_it
}

#[test]
fn every_seeded_bug_fits_its_statements_exactly_once() {
    let in_statements = BUGS.iter().filter(|bug| !statements(bug).is_empty()).count();
    assert!(in_statements >= 7, "{in_statements}");
}

#[test]
fn every_switch_of_a_seeded_bug_stands_in_the_code_once() {
    let sources = ["queue-core/src", "queue-worker/src"].into_iter().flat_map(|folder| walkdir::WalkDir::new(root().join(folder)));
    let texts: Vec<String> = sources.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok()).collect();
    for bug in &BUGS {
        if let Is::Switch(switch) = bug.is {
            let asked = format!("bug(\"{switch}\")");
            let count: usize = texts.iter().map(|text| text.matches(&asked).count()).sum();
            assert_eq!(count, 1, "`{}` is behind {switch}", bug.name);
        }
    }
}

#[tokio::test]
async fn the_server_takes_every_statement_with_a_seeded_bug() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    for bug in &BUGS {
        for (file, text) in statements(bug) {
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
