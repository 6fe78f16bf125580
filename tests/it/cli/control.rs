//! Control of jobs, dead letters at a rate, and exports on the command line.

use std::collections::BTreeSet;

use serde_json::Value;
use tests::{Act, TestDb};

use super::{enqueue, failed, json, on, text};

#[tokio::test]
async fn jobs_that_wait_are_put_off_hurried_ranked_and_cancelled_one_by_one_or_all() {
    let db = TestDb::new().await;
    let jobs = [enqueue(&db, Act::Ok("x".into())).await, enqueue(&db, Act::Ok("y".into())).await];
    let [first, second] = jobs.map(|id| id.to_string());
    assert_eq!(json(&db, &["snooze", &first, "--by", "1h"])["snoozed"], serde_json::json!([first]));
    assert_eq!(json(&db, &["run-now", &first])["ready"], serde_json::json!([first]));
    assert_eq!(json(&db, &["reschedule", "--at", "2099-12-24T18:00:00+01:00", &second])["rescheduled"], serde_json::json!([second]));
    assert_eq!(json(&db, &["show", &second])["run_at"], "2099-12-24T17:00:00Z");
    assert_eq!(json(&db, &["priority", &first, &second, "--to", "-7"])["changed"], serde_json::json!([first, second]));
    assert_eq!(json(&db, &["show", &second])["priority"], -7);
    assert_eq!(json(&db, &["priority", "--all", "--state", "ready", "--to", "9", "--dry-run"])["found"], 1);
    assert_eq!(json(&db, &["priority", "--all", "--state", "ready", "--to", "9"])["changed"], 1);
    let (code, said) = failed(&on(&db, &["run-now", &first]));
    assert!(code == Some(3) && said.contains("is ready"), "{said}");
    let all = json(&db, &["cancel", "--all", "--queue", "default"]);
    assert_eq!((all["cancelled"].clone(), all["asked"].clone()), (2.into(), 0.into()));
    assert_eq!(text(&on(&db, &["cancel", "--all"]).stdout), "cancelled 0 jobs\n");
    for (arguments, what) in [
        (vec!["snooze", "--all", "--by", "-1h"], "negative"),
        (vec!["reschedule", &first, "--at", "tomorrow"], "2026-12-24T18:00:00Z"),
        (vec!["priority", &first, "--to", "40000"], "40000"),
        (vec!["requeue", "--all", "--rate", "0/s"], "50/s"),
        (vec!["requeue", &first, "--rate", "1/s"], "--all"),
        (vec!["discard", "--all"], "--yes"),
        (vec!["run-now", "--all", "--state", "dead"], "it must be scheduled"),
        (vec!["cancel", &first, "--dry-run"], "--all"),
        (vec!["cancel", &first, "--state", "ready"], "--all"),
        (vec!["discard", &first, "--error", "x"], "--all"),
        (vec!["cancel"], "ID"),
    ] {
        let (code, said) = failed(&on(&db, &arguments));
        assert!(code == Some(2) && said.contains(what), "{arguments:?}: {code:?} {said}");
    }
    db.finish().await;
}

#[tokio::test]
async fn ten_thousand_dead_letters_are_exported_each_once_with_their_errors() {
    let db = TestDb::new().await;
    let fill = "with j as (
         insert into queue.job (id, lane, max_attempts, payload)
         select queue.next_id(), queue.meet_lane('default', 'do', 100::smallint, false), 3, '{\"secret\":true}' from generate_series(1, 10000) returning id, lane),
       d as (insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 2, 0, 'late' from j)
       insert into queue.failure (id, attempt, at, ran_ms, error) select id, n, now(), 1, 'late ' || n || e'\\n\\u001b[31m' from j, generate_series(1, 2) n";
    sqlx::query(fill).execute(&db.pool).await.unwrap();
    let output = on(&db, &["export", "--state", "dead", "--since", "1d"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    let ids: BTreeSet<&str> = lines.iter().map(|line| line.split('"').nth(3).unwrap()).collect();
    assert_eq!((lines.len(), ids.len()), (10_000, 10_000));
    assert!(!text(&output.stdout).contains("secret") && !text(&output.stdout).contains('\u{1b}'));
    let one: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!((one["failures"].as_array().unwrap().len(), one["failures"][1]["attempt"].clone()), (2, 2.into()));
    let output = on(&db, &["export", "--state", "dead", "--payload", "--error", "late"]);
    assert_eq!(text(&output.stdout).matches(r#""payload":{"secret": true}"#).count(), 10_000);
    assert_eq!(text(&on(&db, &["export", "--state", "dead", "--older-than", "1d"]).stdout), "");
    db.finish().await;
}
