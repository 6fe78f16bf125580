//! Tests `enqueue` on the command line: jobs with options, a job whose uniqueness key is held, and payloads that are refused.

use std::io::Write as _;

use queue_core::Queue;
use serde_json::json;
use tests::{Act, Do, TestDb};

use super::{CLI, command, folder, json, on, text};

/// Binary with a job type whose payloads are encrypted.
const SEALED: &str = env!("CARGO_BIN_EXE_test-panicking-cli");

#[tokio::test]
#[ignore = "deep"]
async fn a_job_is_enqueued_by_its_name_and_runs() {
    let db = TestDb::new().await;
    let payload = serde_json::to_string(&Do { act: Act::Ok("by hand".into()) }).unwrap();
    let first = json(&db, &["enqueue", "do", &payload, "--options", "{\"unique_key\": \"u\", \"priority\": 7, \"queue\": null}"]);
    assert_eq!(first["outcome"], "enqueued");
    let id = first["id"].as_str().unwrap();
    // No worker has published the options of the job type yet, so the options that `--options` does not set come from the binary itself.
    let written = format!("select count(*) from queue.jobs where id = {id} and priority = 7 and queue = 'default' and max_attempts = 3");
    assert_eq!(db.count(&written).await, 1);
    let again = json(&db, &["enqueue", "do", &payload, "--options", "{\"unique_key\": \"u\"}"]);
    assert_eq!(again, json!({ "id": id, "outcome": "kept" }));
    let noted = Queue::new(&db.pool).audit(None, 10).await.unwrap();
    let noted: Vec<_> = noted.iter().map(|note| (note.act.as_str(), note.what.clone())).collect();
    assert_eq!(noted, [("kept", format!("job {id}: do")), ("enqueued", format!("job {id}: do"))]);
    let mut piped = command(CLI, &["enqueue", "do", "-"]);
    piped.env("DATABASE_URL", &db.url).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut piped = piped.spawn().unwrap();
    piped.stdin.take().unwrap().write_all(payload.as_bytes()).unwrap();
    let output = piped.wait_with_output().unwrap();
    let second = text(&output.stdout).trim().strip_prefix("enqueued job ").unwrap_or_else(|| panic!("{output:?}"));
    db.run_while(db.worker(), async {
        for job in [id, second] {
            db.until(job.parse().unwrap(), queue_core::JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_payload_that_is_too_large_or_would_be_stored_as_clear_text_is_refused() {
    let db = TestDb::new().await;
    let file = folder().join("large.json");
    std::fs::write(&file, format!("\"{}\"", "x".repeat(300_000))).unwrap();
    let output = on(&db, &["enqueue", "do", &format!("@{}", file.display())]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("the limit is 262144"), "{:?}", output.status);
    // The command reads at most one byte more than 4 MiB. In this file, the last byte that it reads is the first half of a character.
    std::fs::write(&file, format!("\"x{}\"", "é".repeat(4 * 1024 * 1024))).unwrap();
    let output = on(&db, &["enqueue", "do", &format!("@{}", file.display())]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("more than 4194304 bytes"), "{output:?}");
    let sealed = command(SEALED, &["enqueue", "tried_sealed", "{\"text\": \"x\"}"]).env("DATABASE_URL", &db.url).output().unwrap();
    assert!(sealed.status.code() == Some(3) && text(&sealed.stderr).contains("are encrypted"), "{sealed:?}");
    assert_eq!(db.count("select count(*) from queue.job").await, 0);
    db.finish().await;
}
