//! Tests `signal` on the command line, and how `show` and the audit log present signals. A signal that no job can receive is rejected.

use std::io::Write as _;

use queue_core::{Job as _, JobState, Queue};
use serde_json::json;
use tests::TestDb;

use super::{CLI, command, text};
use crate::durable::{Part, Plan, plan};

/// Runs the CLI with these arguments. Returns the exit code, stdout and stderr.
fn run(db: &TestDb, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(CLI, arguments).env("DATABASE_URL", &db.url).output().unwrap();
    (output.status.code(), text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
}

#[tokio::test]
#[ignore = "deep"]
async fn a_signal_is_sent_by_the_command_line_and_seen_until_it_is_received() {
    let db = TestDb::new().await;
    let parts =
        [Part::Within("paid".into(), 3_600_000), Part::Receive("sh ip".into()), Part::Receive("two".into()), Part::Receive("end".into())];
    let job = plan(parts).enqueue(&db.pool).await.unwrap();
    let id = job.id().to_string();
    let worker = || db.worker().register::<Plan>();
    db.run_while(worker(), db.until(job.id(), JobState::Parked)).await;
    let (_, why, _) = run(&db, &["why", &id]);
    assert!(why.contains(&format!("`test-cli signal {id} paid`")) && why.contains("it waits for the signal `paid` since"), "{why}");
    let (_, shown, _) = run(&db, &["show", &id]);
    assert!(shown.contains(", paid: attempt 1, waits for a signal until") && !shown.contains("sleeps"), "{shown}");
    // The payloads come from an argument, a file and stdin. The signal `unasked` has no payload, and the job does not wait for it.
    let file = std::env::temp_dir().join(format!("payload-{id}.json"));
    std::fs::write(&file, "\n\"by file\"\n").unwrap();
    let of_file = format!("@{}", file.display());
    assert_eq!(run(&db, &["signal", &id, "paid", "--payload", "\"secret\""]).0, Some(0));
    let (code, stdout, wrong) = run(&db, &["signal", &id, "sh ip", "--payload", &of_file, "--json"]);
    assert_eq!(
        (code, serde_json::from_str::<serde_json::Value>(&stdout).unwrap()),
        (Some(0), json!({ "signalled": id, "name": "sh ip" })),
        "{wrong}"
    );
    std::fs::remove_file(&file).unwrap();
    let mut piped = command(CLI, &["signal", &id, "two", "--payload", "-"]);
    piped.env("DATABASE_URL", &db.url).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut piped = piped.spawn().unwrap();
    piped.stdin.take().unwrap().write_all(b"\"by stdin\"").unwrap();
    assert_eq!(text(&piped.wait_with_output().unwrap().stdout).trim(), format!("sent two to {id}"));
    assert_eq!(run(&db, &["signal", &id, "unasked"]).0, Some(0));
    let (_, shown, _) = run(&db, &["show", &id]);
    assert!(
        shown.contains(", paid: not received yet") && shown.contains(", unasked: not received yet") && !shown.contains("secret"),
        "{shown}"
    );
    let noted = Queue::new(&db.pool).audit(None, 10).await.unwrap();
    assert_eq!((noted.len(), noted[0].act.as_str(), noted[0].what.clone()), (4, "signalled", format!("job {id}: unasked")));
    db.run_while(worker(), async {
        tests::eventually("it waits for the last", async || db.count("select count(*) from queue.parked where names = '{end}'").await == 1)
            .await;
        assert_eq!(run(&db, &["signal", &id, "end", "--payload", "\"x\""]).0, Some(0));
        db.until(job.id(), JobState::Completed).await;
    })
    .await;
    let output: serde_json::Value = sqlx::query_scalar("select output from queue.done").fetch_one(&db.pool).await.unwrap();
    assert_eq!(output, json!(["secret", "by file", "by stdin", "x"]));
    db.finish().await;
}

#[tokio::test]
async fn a_signal_without_a_receiver_or_that_is_not_json_is_refused_and_not_audited() {
    let db = TestDb::new().await;
    let job = plan([]).enqueue(&db.pool).await.unwrap();
    let id = job.id().to_string();
    for (arguments, code, expected) in [
        (vec!["signal", &id, "a", "--payload", "{\"secret\":"], 2, "the payload is not JSON"),
        (vec!["signal", &id, "a", "--payload", "@/nowhere"], 2, "the payload file /nowhere cannot be read"),
        (vec!["signal", &id, ""], 2, "1 to 200 bytes"),
        (vec!["signal", "7", "a"], 3, "there is no job 7"),
    ] {
        let (was, _, wrong) = run(&db, &arguments);
        assert!(was == Some(code) && wrong.contains(expected) && !wrong.contains("secret"), "{arguments:?}: {was:?} {wrong}");
    }
    db.run_while(db.worker().register::<Plan>(), db.until(job.id(), JobState::Completed)).await;
    let (code, _, wrong) = run(&db, &["signal", &id, "a"]);
    assert!(code == Some(3) && wrong.contains("is finished"), "{wrong}");
    assert_eq!(db.count("select (select count(*) from queue.signal) + (select count(*) from queue.audit)").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_signal_named_like_an_option_is_sent_by_the_command_that_why_prints() {
    let db = TestDb::new().await;
    let job = plan([Part::Receive("--now".into())]).enqueue(&db.pool).await.unwrap();
    let id = job.id().to_string();
    db.run_while(db.worker().register::<Plan>(), async {
        db.until(job.id(), JobState::Parked).await;
        let (_, why, _) = run(&db, &["why", &id]);
        let fix = why.split('`').find_map(|part| part.strip_prefix("test-cli ")).unwrap_or_else(|| panic!("{why}")).to_owned();
        assert!(fix == format!("signal {id} -- --now") && why.contains("with --payload JSON before `--`"), "{why}");
        let mut words: Vec<&str> = fix.split(' ').collect();
        words.splice(2..2, ["--payload", "\"x\""]);
        assert_eq!(run(&db, &words).0, Some(0));
        db.until(job.id(), JobState::Completed).await;
    })
    .await;
    db.finish().await;
}
