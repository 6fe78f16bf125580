//! Checks that each mutation still applies to its statement. A mutation that does not apply would never be tested.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{collections::BTreeSet, fs};

use queue_core::Store;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::TestDb;

use super::{FOLDERS, Statement, mutation, mutations_folder, noticed, statements};

#[test]
fn every_mutation_applies_and_belongs_to_a_statement() {
    let (mut mutations, mut with_mutations, mut faults) = (0, 0, Vec::new());
    for Statement { file, text, mutations: all, .. } in statements().unwrap() {
        with_mutations += usize::from(!all.is_empty());
        mutations += all.len();
        faults.extend(all.iter().filter_map(|mutation| Some(format!("{file}: {:#}", mutation.apply(&text).err()?))));
    }
    assert!(faults.is_empty(), "these no longer apply to their statements:\n{}", faults.join("\n"));
    assert!(mutations >= 1700, "{mutations}");
    let files: usize = FOLDERS.into_iter().map(|folder| fs::read_dir(mutations_folder().join(folder)).unwrap().count()).sum();
    assert_eq!(files, with_mutations, "a file in tests/torture/guards has no mutations, or its statement is gone");
}

#[test]
fn every_statement_that_writes_has_guards() {
    for statement in statements().unwrap() {
        // Ignores string literals, because they may contain SQL that is not executed. An example is a fix that `doctor` proposes.
        let code = statement.code().collect::<Vec<_>>().join("\n");
        let code: String = code.split('\'').step_by(2).collect();
        let writes = ["insert into", "delete from", "update queue", "for update", "queue.insert_job(", "queue.ensure_lane("];
        assert!(
            !statement.mutations.is_empty() || !writes.iter().any(|word| code.contains(word)),
            "{} writes, and has no guard",
            statement.file
        );
    }
}

#[test]
fn every_guard_has_tests_and_every_listed_object_has_guards() {
    let mut met = BTreeSet::new();
    for statement in statements().unwrap() {
        for mutation in &statement.mutations {
            met.insert(mutation.object.clone().unwrap_or_else(|| statement.file.clone()));
            assert!(!statement.noticed_by(mutation).is_empty(), "{}: {} ({:?})", statement.file, mutation.promise, mutation.object);
        }
    }
    let gone: Vec<&str> = noticed::names().filter(|name| !met.contains(*name)).collect();
    assert!(gone.is_empty(), "`noticed.rs` names {gone:?}, which have no guards");
}

/// Returns SQL that recreates the function, table or view `object` from the text of a mutated migration.
fn recreate_sql(text: &str, object: &str) -> String {
    let begins = |line: &&str| line.starts_with("create ");
    let is_it = |line: &str| mutation::created(line).as_deref() == Some(object);
    let all = text.lines().skip_while(|line| !is_it(line));
    let made: Vec<&str> = all.clone().take(1).chain(all.skip(1).take_while(|line| !begins(line))).collect();
    let made = made.join("\n").replacen("create or replace ", "create ", 1);
    match made.split(' ').nth(1) {
        Some("function") => made.replacen("create", "create or replace", 1),
        kind => format!("drop {} {object} cascade; {made}", kind.unwrap()),
    }
}

#[tokio::test]
async fn the_server_takes_every_statement_without_a_guard() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let mut refused = Vec::new();
    for Statement { file, text, mutations, is_migration } in statements().unwrap() {
        for mutation in mutations {
            let without = mutation.apply(&text).unwrap();
            let take = match mutation.object.as_deref().filter(|_| is_migration) {
                // The rollback is on a new line, because the definition may end with a comment.
                Some(object) => format!("begin; {}\n; rollback", recreate_sql(&without, object)),
                None => format!("prepare without_it as {}; deallocate without_it", Store::default().sql(without.leak())),
            };
            if let Err(error) = sqlx::raw_sql(AssertSqlSafe(take)).execute(&mut on).await {
                refused.push(format!("{file}: {} is not a guard: {error}", mutation.promise));
                sqlx::raw_sql("rollback").execute(&mut on).await.unwrap();
            }
        }
    }
    db.finish().await;
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Applies a diff that contains a single mutation to `text`.
fn apply(diff: &str, text: &str) -> String {
    let mutations = mutation::parse(diff).unwrap();
    assert_eq!(mutations.len(), 1);
    mutations[0].apply(text).unwrap()
}

#[test]
fn lines_match_regardless_of_indentation_and_comments() {
    let text = "-- One.\nselect a\nfrom t\n  where x  -- Why.\n    and y;\n";
    assert_eq!(apply("@@ the first\n-where x\n-and y;\n+where y;", text), "-- One.\nselect a\nfrom t\nwhere y;\n");
    assert_eq!(apply("@@ both\n-select a\n+select min(a)\n@@\n from t\n-where x", text), "-- One.\nselect min(a)\nfrom t\n    and y;\n");
}

#[test]
fn lines_under_the_name_of_an_object_are_those_that_create_it() {
    let text = "create table queue.a (\n  x int\n);\ncreate table queue.b (\n  x int\n);";
    let diff = "--- queue.b\n\n@@ has a column\nredundant: no statement reads it\n-x int";
    assert_eq!(apply(diff, text), "create table queue.a (\n  x int\n);\ncreate table queue.b (\n);\n");
    assert_eq!(mutation::parse(diff).unwrap()[0].redundant.as_deref(), Some("no statement reads it"));
}

#[test]
fn invalid_and_ambiguous_mutations_are_refused() {
    for (diff, fault) in [
        ("-a", "no `@@ PROMISE` above"),
        ("@@ x\n-a\n@@ x\n-b", "line 3: @@ x: a mutation above has the same promise"),
        ("@@ x\nwhere a", "begins with ` `, `-` or `+`"),
    ] {
        let message = format!("{:#}", mutation::parse(diff).unwrap_err());
        assert!(message.contains(fault), "{diff:?}: {message}");
    }
    for (diff, fault) in [
        ("@@ x\n-c", "x: occurs 0 times instead of once:\nc"),
        ("@@ x\n-a", "occurs 2 times"),
        ("@@ x\n a\n-b\n+  b", "changes nothing"),
        ("@@ x", "changes nothing"),
        ("@@ x\n+a", "occurs 0 times"),
        ("--- queue.a\n@@ x\n-a", "occurs 0 times"),
    ] {
        let message = format!("{:#}", mutation::parse(diff).unwrap()[0].apply("a\nb\na").unwrap_err());
        assert!(message.contains(fault), "{diff:?}: {message}");
    }
}
