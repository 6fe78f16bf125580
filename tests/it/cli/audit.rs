//! Tests the audit entries of operations on the command line. Each change is recorded with its actor and target. Rejected operations and
//! reads are not recorded.

use queue_core::{JobId, Queue, operate};
use tests::{Act, TestDb};

use super::{CLI, command, enqueue, text};

/// Runs a command as the user `ada`, whose name contains a terminal escape sequence. Returns the exit code.
fn by_ada(db: &TestDb, arguments: &[&str]) -> Option<i32> {
    let output = command(CLI, arguments).env("DATABASE_URL", &db.url).env("USER", "ada\u{1b}[31m").output().unwrap();
    assert!(!text(&output.stdout).contains('\u{1b}'));
    output.status.code()
}

#[tokio::test]
#[ignore = "deep"]
async fn each_operation_of_the_command_line_is_audited_with_its_actor_and_target() {
    let db = TestDb::new().await;
    let jobs = [enqueue(&db, Act::Ok("x".into())).await, enqueue(&db, Act::Ok("y".into())).await].map(|id: JobId| id.to_string());
    let [first, second] = &jobs;
    let acts: [(&[&str], &str, String, i64); 15] = [
        (&["snooze", first, "--by", "1h"], "snoozed", format!("job {first}"), 1),
        (&["priority", "--all", "--queue", "default", "--error", "x y", "--to", "7"], "", String::new(), 0),
        (&["priority", "--all", "--queue", "default", "--to", "7"], "changed", "jobs of queue:default".into(), 2),
        (&["cancel", second], "cancelled", format!("job {second}"), 1),
        (&["pause", "--queue", "default"], "paused", "queue default".into(), 0),
        (&["resume", "--queue", "default"], "resumed", "queue default".into(), 0),
        (&["capacity", "default", "7"], "capacity", "queue default: 7".into(), 0),
        (&["limits", "set", "queue:default", "--concurrency", "3"], "limited", "limit queue:default".into(), 0),
        (&["limits", "unset", "queue:default"], "unlimited", "limit queue:default".into(), 0),
        (&["weight", "do", "acme", "3"], "weighted", "key acme of type do".into(), 0),
        (&["cron", "add", "tick", "--type", "do", "--every", "1h"], "scheduled", "schedule tick".into(), 0),
        (&["cron", "pause", "tick"], "paused", "schedule tick".into(), 0),
        (&["cron", "resume", "tick"], "resumed", "schedule tick".into(), 0),
        (&["cron", "run", "tick"], "run", "schedule tick".into(), 0),
        (&["cron", "remove", "tick"], "removed", "schedule tick".into(), 0),
    ];
    for (arguments, act, what, jobs) in &acts {
        assert_eq!(by_ada(&db, arguments), Some(0), "{arguments:?}");
        let noted = Queue::new(&db.pool).audit(None, 1).await.unwrap();
        if act.is_empty() {
            continue;
        }
        let noted = &noted[0];
        assert_eq!((noted.act.as_str(), noted.what.as_str(), noted.jobs), (*act, what.as_str(), *jobs), "{arguments:?}");
        assert!(noted.actor.starts_with("ada") && noted.actor.ends_with(", by the command line"), "{}", noted.actor);
    }
    let noted = db.count("select count(*) from queue.audit").await;
    assert_eq!(noted, acts.len() as i64 - 1, "an act that was on no job is no act");
    // Rejected operations, dry runs and reads add no entries.
    assert_eq!(by_ada(&db, &["run-now", second]), Some(3));
    assert_eq!(by_ada(&db, &["resume", "--queue", "default"]), Some(3));
    assert_eq!(by_ada(&db, &["limits", "unset", "nothing"]), Some(3));
    assert_eq!(by_ada(&db, &["cancel", "--all", "--dry-run"]), Some(0));
    assert_eq!(by_ada(&db, &["stats"]), Some(0));
    assert_eq!(by_ada(&db, &["capacity"]), Some(0));
    assert_eq!(db.count("select count(*) from queue.audit").await, noted);
    db.finish().await;
}

#[tokio::test]
async fn an_operation_under_strict_isolation_is_audited_beside_concurrent_entries() {
    let db = TestDb::new().await;
    let old = "insert into queue.audit (actor, act, what, jobs) select 'a', 'b', n::text, 0 from generate_series(1, 10050) n";
    sqlx::query(old).execute(&db.pool).await.unwrap();
    let mut strict = db.pool.begin_with("begin isolation level repeatable read").await.unwrap();
    let note = |what: &str| operate::Note { actor: "ada".into(), act: "cancelled".into(), what: what.into() };
    // The REPEATABLE READ transaction takes its snapshot before another transaction deletes the old entries.
    assert_eq!(sqlx::query_scalar::<_, i64>("select count(*) from queue.audit").fetch_one(&mut *strict).await.unwrap(), 10_050);
    Queue::new(&db.pool).record_operation(&note("first"), 0).await.unwrap();
    Queue::on(&mut strict).record_operation(&note("second"), 0).await.unwrap();
    strict.commit().await.unwrap();
    let noted = Queue::new(&db.pool).audit(None, 2).await.unwrap();
    assert_eq!(noted.iter().map(|note| note.what.as_str()).collect::<Vec<_>>(), ["second", "first"]);
    let job = enqueue(&db, Act::Ok("x".into())).await.to_string();
    let url = format!("{}{}options=-c%20default_transaction_isolation=serializable", db.url, if db.url.contains('?') { "&" } else { "?" });
    let output = command(CLI, &["cancel", &job]).env("DATABASE_URL", url).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    db.finish().await;
}
