//! Tests the command `why`: its output, its exit codes, and the data that it never shows.

use queue_core::{Job as _, JobState, Queue, operate};
use serde_json::Value;
use tests::{Act, Do};

use super::{TestDb, cli, connect, ok, run};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn the_first_line_is_the_answer_and_the_last_ones_are_fixes() {
    let db = TestDb::new().await;
    let job = ok(&db).await.to_string();
    Queue::new(&db.pool).pause_with_reason(&operate::Scope::EVERYTHING, Some("moving house")).await.unwrap();
    let output = cli(&db, &["why", &job]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines[0], "no worker is alive");
    assert_eq!(lines[1], format!("  job {job}: do, queue default, priority 100, ready"));
    assert!(lines[2].starts_with("also: everything is paused by ") && lines[2].ends_with(": moving house"), "{lines:?}");
    assert!(lines[3].starts_with("fix: start a worker") && lines[4] == "fix: test-cli resume --all", "{lines:?}");
    let shown: Value = serde_json::from_slice(&cli(&db, &["why", &job, "--json"]).stdout).unwrap();
    assert_eq!((&shown["job"], &shown["state"], &shown["queue"]), (&job.as_str().into(), &"ready".into(), &"default".into()));
    let kinds: Vec<&Value> = shown["causes"].as_array().unwrap().iter().map(|cause| &cause["kind"]).collect();
    assert_eq!(kinds, ["no_worker", "paused"]);
    assert_eq!(
        (&shown["causes"][1]["facts"]["reason"], &shown["causes"][1]["fix"]),
        (&"moving house".into(), &"test-cli resume --all".into())
    );
    let absent = cli(&db, &["why", "7"]);
    assert_eq!((absent.status.code(), text(&absent.stderr)), (Some(3), ""), "an answer, and no such job");
    assert!(text(&absent.stdout).starts_with("there is no job 7"));
    let absent = cli(&db, &["why", "7", "--json"]);
    assert_eq!(absent.status.code(), Some(3));
    assert_eq!(serde_json::from_slice::<Value>(&absent.stdout).unwrap()["causes"][0]["kind"], "no_such_job");
    assert_eq!(cli(&db, &["why", "x"]).status.code(), Some(2));
    let shown = cli(&db, &["show", &job]);
    assert!(text(&shown.stdout).contains(&format!("test-cli why {job}")), "{}", text(&shown.stdout));
    db.run_while(super::worker(&db), async {
        Queue::new(&db.pool).resume(&operate::Scope::EVERYTHING).await.unwrap();
        db.until(job.parse().unwrap(), JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

const HOSTILE: &str = "a\u{1b}]0;title\u{7}\u{9b}2J\r\n\tb\u{202e}c'; rm -rf / #";

#[tokio::test]
#[ignore = "deep"]
async fn f62_foreign_texts_are_inert_and_no_payload_is_shown() {
    let db = TestDb::new().await;
    let secret = "do-not-show";
    let dead = Do { act: Act::Terminal(HOSTILE.into()) }.enqueue(&db.pool).meta("note", HOSTILE).await.unwrap().id();
    db.run_until_idle(super::worker(&db)).await;
    let waiting = Do { act: Act::Ok(secret.into()) }.enqueue(&db.pool).fair(HOSTILE).await.unwrap().id();
    Queue::new(&db.pool).pause_with_reason(&operate::Scope::queue("default"), Some(HOSTILE)).await.unwrap();
    let silent = "insert into queue.worker (id, expires_at, name, host, pid, version, queues)
        values (gen_random_uuid(), now() - interval '1 h', $1, $1, 1, '', '{}')";
    sqlx::query(silent).bind(HOSTILE).execute(&db.pool).await.unwrap();
    let mut holder = connect(&db).await;
    sqlx::query("select set_config('application_name', $1, false)").bind(HOSTILE).execute(&mut holder).await.unwrap();
    run(&mut holder, "begin; select from queue.ready for update").await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    for (job, expected) in [(waiting, 4), (dead, 3)] {
        for arguments in [vec!["why", "--json"], vec!["why"]] {
            let job = job.to_string();
            let output = cli(&db, &[arguments, vec![job.as_str()]].concat());
            let out = text(&output.stdout);
            assert!(output.status.success() && out.lines().count() >= expected, "{out}");
            let acts = |letter: char| letter.is_control() && letter != '\n' || ('\u{202a}'..='\u{202e}').contains(&letter);
            assert!(!out.chars().any(acts), "{out:?}");
            assert!(!out.contains(secret), "{out}");
        }
    }
    let output = cli(&db, &["why", &waiting.to_string()]);
    assert!(text(&output.stdout).lines().all(|line| ["no worker", "  job", "also: ", "fix: "].iter().any(|begin| line.starts_with(begin))));
    run(&mut holder, "rollback").await;
    db.finish().await;
}

#[tokio::test]
async fn a_key_with_quotes_is_quoted_for_the_shell() {
    let db = TestDb::new().await;
    let key = "it's $(touch /tmp/never) `x` \\";
    assert!(cli(&db, &["limits", "set", "type:do", "--per-key", "--concurrency", "1"]).status.success());
    assert!(cli(&db, &["limits", "set", "type:do", "--key", key, "--concurrency", "0"]).status.success());
    let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).fair(key).await.unwrap().id();
    let why = super::ask(&db, job).await;
    let limited = why.causes.iter().find(|cause| cause.kind == operate::CauseKind::Limited).unwrap();
    let done = super::shell(&db, limited.fix.as_deref().unwrap());
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(db.count(&format!("select concurrency::bigint from queue.key_bound where key = '{}'", key.replace('\'', "''"))).await, 1);
    db.run_while(super::worker(&db), db.until(job, JobState::Completed)).await;
    db.finish().await;
}
