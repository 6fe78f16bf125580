//! Tests the command `doctor`: its text, its JSON, its exit codes, and the document that lists all findings.

use std::{collections::BTreeSet, fs, path::Path};

use queue_core::operate::{FindingKind, Severity};
use serde_json::Value;
use tests::TestDb;

use super::cli;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn the_exit_code_shows_the_severity() {
    let db = TestDb::new().await;
    let broken = cli(&db.url, &["doctor"]);
    assert_eq!((broken.status.code(), text(&broken.stderr)), (Some(2), ""), "no worker is alive");
    let output = text(&broken.stdout);
    assert!(output.contains("broken: no worker is alive [no_worker]\n  ") && output.contains("fix: start one"), "{output}");
    assert!(output.lines().last().unwrap().starts_with("schema queue on PostgreSQL "), "{output}");

    let ignored = ["--ignore", "no_worker", "--ignore", "fsync_off", "--ignore", "full_page_writes_off"];
    let name: String = sqlx::query_scalar("select current_database()::text").fetch_one(&db.pool).await.unwrap();
    super::make(&db.pool, &format!("alter database {name} set synchronous_commit = off")).await;
    let warned = cli(&db.url, &[&["doctor"], &ignored[..]].concat());
    assert_eq!(warned.status.code(), Some(0), "{}", text(&warned.stdout));
    assert!(text(&warned.stdout).contains("warning: synchronous_commit is off"));
    assert_eq!(cli(&db.url, &[&["doctor", "--strict"], &ignored[..]].concat()).status.code(), Some(1));

    let json = cli(&db.url, &["doctor", "--json"]);
    assert_eq!(json.status.code(), Some(2), "JSON changes no exit code");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let first = json["findings"].as_array().unwrap().iter().find(|finding| finding["kind"] == "no_worker").unwrap();
    assert_eq!((&first["severity"], &first["can_be_pasted"]), (&"broken".into(), &false.into()));
    assert!(first["consequence"].as_str().is_some_and(|text| !text.is_empty()) && json["schema"] == "queue");

    let nowhere = cli(&db.url, &["doctor", "--schema", "nowhere"]);
    let output = text(&nowhere.stdout);
    assert!(
        output.contains("run `test-cli migrate --schema nowhere`") && output.contains("fix: test-cli migrate --schema nowhere"),
        "{output}"
    );
    db.finish().await;
}

#[tokio::test]
async fn an_unreachable_database_is_a_finding_and_a_wrong_option_is_not() {
    let away = cli("postgres://nobody:do-not-show@127.0.0.1:1/none", &["doctor", "--json"]);
    assert_eq!(away.status.code(), Some(2));
    assert!(!text(&away.stdout).contains("do-not-show"), "{}", text(&away.stdout));
    let json: Value = serde_json::from_slice(&away.stdout).unwrap();
    assert_eq!(json["findings"][0]["kind"], "unreachable");
    for wrong in [&["doctor", "--ignore", "nothing_of_the_kind"][..], &["doctor", "--trusted-network", "10.0.0.0"]] {
        let refused = cli("postgres://127.0.0.1:1/none", wrong);
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), ""), "{wrong:?}");
    }
}

#[tokio::test]
async fn foreign_names_are_inert_on_a_terminal() {
    let db = TestDb::new().await;
    let mut holder = super::connect(&db).await;
    super::run(&mut holder, "set application_name = 'evil'; begin isolation level repeatable read; select from queue.job").await;
    super::make(&db.pool, "create function public.\"now\"(\"a\u{1b}[31mb\" int) returns int language sql return 1").await;
    let output = cli(&db.url, &["doctor", "--transaction", "0s"]);
    let output = text(&output.stdout);
    assert!(output.contains("long_transaction") && output.contains("planted") && !output.contains('\u{1b}'), "{output}");
    drop(holder);
    db.finish().await;
}

/// Returns the kind and severity of each finding in the table of `docs/DOCTOR.md`.
fn documented_findings() -> BTreeSet<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/DOCTOR.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    rows.filter_map(|(kind, rest)| Some((kind.to_owned(), rest.split_once(" |")?.0.to_owned()))).collect()
}

#[test]
fn the_document_has_each_finding_with_its_severity() {
    let kinds: BTreeSet<(String, String)> = FindingKind::ALL.iter().map(|kind| (kind.to_string(), kind.severity().to_string())).collect();
    assert_eq!(documented_findings(), kinds);
    let order: Vec<Severity> = FindingKind::ALL.iter().map(|kind| kind.severity()).collect();
    assert!(order.is_sorted_by(|a, b| a >= b), "the worst first");
}

#[test]
fn each_finding_is_provoked_in_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/doctor");
    let tests: String = fs::read_dir(folder).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("queue-core/src/operate/doctor/checks.rs");
    let tests = tests + fs::read_to_string(core).unwrap().split_once("mod tests").unwrap().1;
    let is_provoked = |kind: &FindingKind| tests.contains(&format!("FindingKind::{kind:?}")) || tests.contains(&format!("\"{kind}\""));
    let missing: Vec<&FindingKind> = FindingKind::ALL.iter().filter(|kind| !is_provoked(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
