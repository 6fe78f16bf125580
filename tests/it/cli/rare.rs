//! Tests `list` with a filter that few jobs or none match. On a terminal, the command shows the progress of the search. The search
//! continues until it finds a match, reaches the oldest job or is interrupted with Ctrl-C. Without a terminal, the search is bounded.

use std::process::Command;

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tests::TestDb;

use super::{CLI, command, text};
use crate::operate::rare::FILL;

const TERMINAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/it/top/terminal.py");

/// Runs the command in a terminal and performs `steps`, such as pressing a key. Returns the exit code and the screen contents.
async fn at_terminal(db: &TestDb, steps: Value, arguments: &'static [&'static str]) -> (i64, String) {
    let mut command = Command::new("python3");
    command.arg(TERMINAL).arg(steps.to_string()).arg(CLI).args(arguments).env("DATABASE_URL", &db.url);
    command.env_remove("QUEUE_TEST_SKIPS").env_remove("RUST_BACKTRACE").env_remove("NO_COLOR").env("TERM", "xterm-256color");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let end: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    assert_eq!(end["missing"], Value::Null, "the expected text, and the shown text");
    (end["code"].as_i64().unwrap(), end["shown"].as_str().unwrap().to_owned())
}

#[tokio::test]
#[ignore = "deep"]
async fn a_search_for_a_rare_job_shows_progress_at_a_terminal_and_is_bounded_elsewhere() {
    let db = TestDb::new().await;
    sqlx::raw_sql(AssertSqlSafe(FILL.replace("24000", "120000"))).execute(&db.pool).await.unwrap();
    let until = json!([["until", "searching further back"]]);
    let (code, shown) = at_terminal(&db, until.clone(), &["list", "--type", "rare"]).await;
    let row = shown.find(" rare ").unwrap_or_else(|| panic!("none is shown: {shown}"));
    assert!(code == 0 && shown.find("no matching job back to 20").is_some_and(|at| at < row), "{shown}");
    let (code, shown) = at_terminal(&db, until, &["list", "--type", "absent"]).await;
    assert!(code == 0 && shown.trim_end().ends_with("no jobs"), "to the end: {shown}");
    let (notes, in_place) = (shown.matches("searching further back").count(), shown.matches("\u{1b}[2A").count());
    assert_eq!(in_place, notes - 1, "each but the first replaces the one before it: {shown:?}");

    // Each call of `type_of` is slow from here on, so that Ctrl-C arrives during the search.
    sqlx::raw_sql(
        "create or replace function queue.type_of(stored text) returns text language plpgsql immutable strict parallel safe as
         $$begin perform pg_catalog.pg_sleep(0.3); return stored; end$$",
    )
    .execute(&db.pool)
    .await
    .unwrap();
    let ended = json!([["until", "searching further back"], ["send", "\u{3}"]]);
    let (code, shown) = at_terminal(&db, ended, &["list", "--type", "absent"]).await;
    assert!(code == 0 && shown.contains("no jobs") && shown.contains("older jobs: --before "), "{shown}");
    let mut piped = command(CLI, &["list", "--type", "absent", "--json"]);
    let output = tokio::task::spawn_blocking({
        let url = db.url.clone();
        move || piped.env("DATABASE_URL", url).output().unwrap()
    });
    let output = output.await.unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let as_before = "create or replace function queue.type_of(stored text) returns text language sql immutable strict parallel safe
        return pg_catalog.split_part(stored, '@', 1)";
    sqlx::raw_sql(as_before).execute(&db.pool).await.unwrap();
    assert!(answer["jobs"] == json!([]) && answer["next"].is_string() && !text(&output.stderr).contains("searching"), "{answer}");
    db.finish().await;
}
