//! The markers are held against the statements: one that fits no longer would be removed by nobody.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeSet;

use queue_core::Store;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::TestDb;

use super::{Statement, marker, noticed, statements};

#[test]
fn every_marker_takes_something_away() {
    let mut guards = 0;
    for statement in statements().unwrap() {
        for guard in &statement.guards {
            guards += 1;
            let without = guard.removed_from(&statement.text).unwrap_or_else(|error| panic!("{}: {error:#}", statement.file));
            let code = |text: &str| text.lines().map(marker::code).collect::<Vec<_>>().join("\n");
            assert_ne!(code(&without), code(&statement.text), "{}: {} takes nothing away", statement.file, guard.name);
        }
    }
    assert!(guards >= 590, "{guards}");
}

#[test]
fn every_statement_that_writes_has_guards() {
    for statement in statements().unwrap() {
        let code: String = statement.code().collect::<Vec<_>>().join("\n");
        let writes = ["insert into", "delete from", "update queue", "for update", "queue.insert_job(", "queue.meet_lane("];
        assert!(
            !statement.guards.is_empty() || !writes.iter().any(|word| code.contains(word)),
            "{} writes, and has no guard",
            statement.file
        );
    }
}

#[test]
fn every_guard_has_tests_that_notice_and_no_test_is_said_to_notice_what_is_not_there() {
    let mut met = BTreeSet::new();
    for statement in statements().unwrap() {
        for guard in &statement.guards {
            met.insert(guard.object.clone().unwrap_or_else(|| statement.file.clone()));
            assert!(!statement.noticed_by(guard).is_empty(), "{}: {} ({:?})", statement.file, guard.name, guard.object);
        }
    }
    let gone: Vec<&str> = noticed::names().filter(|name| !met.contains(*name)).collect();
    assert!(gone.is_empty(), "`noticed.rs` names {gone:?}, which have no guards");
}

/// What makes this function, table or view anew, without a guard.
fn anew(text: &str, object: &str) -> String {
    let begins = |line: &&str| line.starts_with("create ");
    let is_it = |line: &str| marker::created(line).as_deref() == Some(object);
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
    for Statement { file, text, guards, is_migration } in statements().unwrap() {
        for guard in guards {
            let without = guard.removed_from(&text).unwrap();
            let take = match guard.object.as_deref().filter(|_| is_migration) {
                // On a line of its own: what is made may end with a comment.
                Some(object) => format!("begin; {}\n; rollback", anew(&without, object)),
                None => format!("prepare without_it as {}; deallocate without_it", Store::default().sql(without.leak())),
            };
            if let Err(error) = sqlx::raw_sql(AssertSqlSafe(take)).execute(&mut on).await {
                refused.push(format!("{file}: {} is no guard: {error}", guard.name));
                sqlx::raw_sql("rollback").execute(&mut on).await.unwrap();
            }
        }
    }
    db.finish().await;
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn markers_stand_in_other_schemas_as_well() {
    let other = Store::new("other").unwrap();
    for statement in statements().unwrap() {
        let text: &'static str = statement.text.clone().leak();
        let there: Vec<String> = other.sql(text).lines().map(|line| marker::code(line).replace("\"other\".", "queue.")).collect();
        let here: Vec<&str> = Store::default().sql(text).lines().map(marker::code).collect();
        assert_eq!(there, here, "{}", statement.file);
    }
}

/// The text without the guard of this name.
fn without(text: &str, name: &str) -> String {
    let guards = marker::parse(text).unwrap();
    let guard = guards.iter().find(|guard| guard.name == name).unwrap();
    let without = guard.removed_from(text).unwrap();
    without.lines().map(marker::code).filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_line_goes_and_its_neighbours_stay_a_statement() {
    let text = "select a,\n  b  -- guard: the last\nfrom t\nwhere x  -- guard: the first\n  and y  -- guard: the other";
    assert_eq!(without(text, "the last"), "select a\nfrom t\nwhere x\n  and y");
    assert_eq!(without(text, "the first"), "select a,\n  b\nfrom t\n  where y");
    assert_eq!(without(text, "the other"), "select a,\n  b\nfrom t\nwhere x");
    let text = "select array(\n  select 1\n  -- guard: more (2 lines)\n  union\n  select 2);\nend";
    assert_eq!(without(text, "more"), "select array(\n  select 1\n);\nend");
}

#[test]
fn a_part_of_a_line_goes_or_is_exchanged() {
    let text = "-- guard: one [a = 1 and ]; the other [ and b = any ('{1}'::int[])]\n-- redundant: a limit [1 => 2 * 1] (it is 'one'; or none)\nwhere a = 1 and b = any ('{1}'::int[]) limit one";
    assert_eq!(without(text, "one"), "where b = any ('{1}'::int[]) limit one");
    assert_eq!(without(text, "the other"), "where a = 1 limit one");
    assert_eq!(marker::parse(text).unwrap()[2].redundant.as_deref(), Some("it is 'one'; or none"));
    let text = "if exists (select from t where a in (1, 2)) then  -- guard: only then [exists .. 2)) => true]";
    assert_eq!(without(text, "only then"), "if true then");
    let text = "select a  -- guard: all [a => min(a)]\nfrom t\ngroup by a  -- also: all";
    assert_eq!(without(text, "all"), "select min(a)\nfrom t");
}

#[test]
fn a_marker_that_says_nothing_is_refused() {
    for (text, fault) in [
        ("a  -- guard: x\nb  -- guard: x", "there is a guard `x` above"),
        ("a  -- also: x", "no guard above"),
        ("a  -- guard: x [b", "not closed"),
        ("a  -- guard: x [b] c", "left over"),
        ("a  -- redundant: x", "says why"),
        ("a  -- guard: x (because)", "says why"),
        ("a  -- guard: ", "has a name"),
        ("a\n-- guard: x", "nothing to guard"),
    ] {
        let said = format!("{:#}", marker::parse(text).unwrap_err());
        assert!(said.contains(fault), "{text:?}: {said}");
    }
    for text in
        ["a  -- guard: x [b]", "a a  -- guard: x [a]", "a  -- guard: x [a => a]", "a  -- guard: x [a .. b]", "-- guard: x (2 lines)\na"]
    {
        let guards = marker::parse(text).unwrap();
        assert!(guards[0].removed_from(text).is_err(), "{text:?}");
    }
}
