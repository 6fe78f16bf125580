//! Tests job operations, exports, metadata filters and pauses on the command line.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use queue_core::Job as _;
use serde_json::Value;
use tests::{Act, Do, TestDb, eventually};

use super::{CLI, command, enqueue, failed, json, on, text};

#[tokio::test]
#[ignore = "deep"]
async fn waiting_jobs_are_postponed_hurried_prioritised_and_cancelled_one_by_one_or_all() {
    let db = TestDb::new().await;
    let jobs = [enqueue(&db, Act::Ok("x".into())).await, enqueue(&db, Act::Ok("y".into())).await];
    let [first, second] = jobs.map(|id| id.to_string());
    let snoozed = json(&db, &["snooze", &first, "--by", "1h"]);
    assert_eq!(snoozed, serde_json::json!({ "snoozed": [first], "cancelling": [], "refused": [] }), "the shape of every act");
    assert_eq!(json(&db, &["run-now", &first])["ready"], serde_json::json!([first]));
    assert_eq!(json(&db, &["reschedule", "--at", "2099-12-24T18:00:00+01:00", &second])["rescheduled"], serde_json::json!([second]));
    assert_eq!(json(&db, &["show", &second])["run_at"], "2099-12-24T17:00:00Z");
    assert_eq!(json(&db, &["priority", &first, &second, "--to", "-7"])["changed"], serde_json::json!([first, second]));
    assert_eq!(json(&db, &["show", &second])["priority"], -7);
    assert_eq!(json(&db, &["priority", "--all", "--state", "ready", "--to", "9", "--dry-run"])["found"], 1);
    assert_eq!(json(&db, &["priority", "--all", "--state", "ready", "--to", "9"])["changed"], 1);
    let (code, message) = failed(&on(&db, &["run-now", &first]));
    assert!(code == Some(3) && message.contains("is ready"), "{message}");
    let all = json(&db, &["cancel", "--all", "--queue", "default", "--yes"]);
    assert_eq!((all["cancelled"].clone(), all["cancelling"].clone()), (2.into(), 0.into()));
    assert_eq!(text(&on(&db, &["cancel", "--all"]).stdout), "cancelled 0 jobs\n");
    for (arguments, what) in [
        (vec!["snooze", "--all", "--by", "-1h"], "negative"),
        (vec!["reschedule", &first, "--at", "tomorrow"], "2026-12-24T18:00:00Z"),
        (vec!["priority", &first, "--to", "40000"], "40000"),
        (vec!["requeue", "--all", "--rate", "0/s"], "50/s"),
        (vec!["requeue", &first, "--rate", "1/s"], "--all"),
        (vec!["run-now", "--all", "--state", "dead"], "it must be scheduled"),
        (vec!["cancel", &first, "--dry-run"], "--all"),
        (vec!["cancel", &first, "--state", "ready"], "--all"),
        (vec!["requeue", "--all", "--state", "completed"], "it must be dead"),
        (vec!["cancel", &first, "--meta", "tenant=acme"], "--all"),
        (vec!["cancel", "--all", "--meta", "tenant"], "tenant=acme"),
        (vec!["discard", &first, "--error", "x"], "--all"),
        (vec!["cancel"], "ID"),
    ] {
        let (code, message) = failed(&on(&db, &arguments));
        assert!(code == Some(2) && message.contains(what), "{arguments:?}: {code:?} {message}");
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn ten_thousand_dead_letters_are_exported_each_once_with_their_errors() {
    let db = TestDb::new().await;
    let fill = "with j as (
         insert into queue.job (id, lane, max_attempts, payload)
         select queue.next_id(), queue.ensure_lane('default', 'do', 100::smallint, false), 3, '{\"secret\":true}' from generate_series(1, 10000) returning id, lane),
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

#[tokio::test]
async fn jobs_are_chosen_by_their_metadata_which_list_show_and_export_have() {
    let db = TestDb::new().await;
    let tagged = "select queue.enqueue('do', '{\"act\":{\"Ok\":\"x\"}}', jsonb_build_object('meta', $1::jsonb))";
    let mut jobs = Vec::new();
    for meta in [r#"{"tenant": "acme", "n": 7}"#, r#"{"tenant": "acme", "n": "7"}"#, r#"{"tenant": "\u001b[31m"}"#] {
        let job: queue_core::JobId = sqlx::query_scalar(tagged).bind(meta).fetch_one(&db.pool).await.unwrap();
        jobs.push(job.to_string());
    }
    let plain = enqueue(&db, Act::Ok("x".into())).await.to_string();
    let ids = |list: &Value| list["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let both = json(&db, &["list", "--meta", "tenant=acme"]);
    assert_eq!(ids(&both), [jobs[1].clone(), jobs[0].clone()]);
    assert_eq!(both["jobs"][1]["meta"], serde_json::json!({ "tenant": "acme", "n": 7 }));
    assert_eq!(ids(&json(&db, &["list", "--meta", "tenant=acme", "--meta", "n=7"])), [jobs[0].clone()], "JSON");
    assert_eq!(ids(&json(&db, &["list", "--meta", "n=\"7\""])), [jobs[1].clone()], "a text with the form of a number");
    assert_eq!(json(&db, &["show", &jobs[0]])["meta"]["n"], 7);
    assert_eq!(json(&db, &["show", &plain]).get("meta"), None);
    let shown = on(&db, &["show", &jobs[0]]);
    assert!(text(&shown.stdout).lines().any(|line| line.starts_with("meta ") && line.contains("acme")), "{}", text(&shown.stdout));
    let listed = on(&db, &["list"]);
    assert!(text(&listed.stdout).contains("META") && text(&listed.stdout).contains("acme") && !text(&listed.stdout).contains('\u{1b}'));
    let exported = on(&db, &["export", "--meta", "tenant=acme"]);
    assert_eq!(text(&exported.stdout).matches(r#""meta":{"#).count(), 2);
    assert_eq!(json(&db, &["cancel", "--all", "--meta", "tenant=acme", "--dry-run"])["found"], 2);
    assert_eq!(json(&db, &["cancel", "--all", "--meta", "tenant=acme", "--yes"])["cancelled"], 2);
    assert_eq!(ids(&json(&db, &["list", "--state", "ready"])), [plain, jobs[2].clone()]);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn pauses_are_shown_with_their_reason_until_they_are_resumed() {
    let db = TestDb::new().await;
    let (mail, other) = (enqueue(&db, Act::Ok("x".into())).await.to_string(), Do { act: Act::Ok("y".into()) });
    let other = other.enqueue(&db.pool).queue("other").await.unwrap().id().to_string();
    let paused = json(&db, &["pause", "--queue", "default", "--reason", "moving\u{1b}[31m", "--wait"]);
    assert_eq!((paused["paused"]["queue"].clone(), paused["stopped"].clone()), ("default".into(), true.into()), "no worker is alive");
    let printed = |arguments: &[&str]| text(&on(&db, arguments).stdout).to_owned();
    assert!(
        printed(&["show", &mail]).contains("waits      paused (moving\\u{1b}[31m): queue default since "),
        "{}",
        printed(&["show", &mail])
    );
    assert!(!printed(&["show", &other]).contains("paused"));
    assert_eq!(json(&db, &["show", &mail])["paused"]["queue"], "default");
    assert!(json(&db, &["list"])["jobs"].as_array().unwrap().iter().any(|job| job["id"] == other.as_str() && job["paused"].is_null()));
    let list = printed(&["list"]);
    for (id, is_paused) in [(&mail, true), (&other, false)] {
        let line = list.lines().find(|line| line.starts_with(id.as_str())).unwrap();
        assert_eq!(line.contains("paused (moving"), is_paused, "{list}");
    }
    assert_eq!(printed(&["pause", "--type", "do", "--queue", "other"]), "paused type do in queue other\n");
    for shown in [printed(&["stats"]), printed(&["pauses"])] {
        for what in ["PAUSED", "SINCE", "queue default", "moving", "type do in queue other", "postgres", "stopped"] {
            assert!(shown.contains(what), "{what}: {shown}");
        }
    }
    let stats = json(&db, &["stats"]);
    assert_eq!((stats["paused"][0]["ready"].clone(), stats["paused"][0]["queue"].clone()), (1.into(), "default".into()));
    assert_eq!(printed(&["pause", "--all"]), "paused everything\n");
    assert!(printed(&["resume", "--queue", "default"]).starts_with("resumed queue default\nstill paused (no reason given): everything"));
    let (code, why) = failed(&on(&db, &["resume", "--queue", "default"]));
    assert!(code == Some(3) && why.contains("not paused") && why.contains("type do in queue other, everything"), "{why}");
    assert_eq!(json(&db, &["resume", "--all"])["paused"][0]["job_type"], "do");
    assert_eq!(printed(&["resume", "--type", "do", "--queue", "other"]), "resumed type do in queue other\n");
    assert_eq!(printed(&["pauses"]), "nothing is paused\n");
    for (arguments, what) in [
        (vec!["pause"], "--all"),
        (vec!["pause", "--all", "--queue", "mail"], "--all"),
        (vec!["pause", "--queue", "a b"], "queue name"),
        (vec!["pause", "--type", "*"], "job type name"),
        (vec!["resume"], "--all"),
    ] {
        let (code, why) = failed(&on(&db, &arguments));
        assert!(code == Some(2) && why.contains(what), "{arguments:?}: {code:?} {why}");
    }
    let unknown = on(&db, &["pause", "--queue", "defualt", "--type", "od"]);
    let why = text(&unknown.stderr);
    assert!(unknown.status.success() && why.contains("did you mean `default`?") && why.contains("did you mean `do`?"), "{why}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_wait_names_the_awaited_workers_and_a_signal_ends_the_wait_but_not_the_pause() {
    let db = TestDb::new().await;
    let worker = "insert into queue.worker (id, expires_at, name, host, pid, version, queues)
      values (gen_random_uuid(), '9999-01-01', 'deaf', 'far', 7, '', '{}')";
    sqlx::query(worker).execute(&db.pool).await.unwrap();
    let waits = |arguments: &[&str]| {
        let mut command = command(CLI, arguments);
        command.env("DATABASE_URL", &db.url).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let child = waits(&["pause", "--all", "--wait"]);
    eventually("it is paused", async || db.count("select count(*) from queue.paused").await == 1).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let why = text(&ended.stderr);
    assert!(ended.status.code() == Some(1) && why.matches("deaf (far:7)").count() >= 2 && why.contains("it stays paused"), "{why}");
    assert_eq!(db.count("select count(*) from queue.paused").await, 1);
    // `pause --wait` must end when another operator ends the pause. Otherwise the command would wait forever.
    let child = waits(&["pause", "--all", "--wait"]);
    eventually("it is paused again", async || db.count("select max(id) from queue.paused").await == 2).await;
    sqlx::query("select queue.resume('*')").execute(&db.pool).await.unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.code() == Some(1) && text(&ended.stderr).contains("resumed by another operator"));
    // `pause --wait` ends when the last worker acknowledges the pause.
    let child = waits(&["pause", "--all", "--wait"]);
    eventually("it is paused again", async || db.count("select coalesce(max(id), 0) from queue.paused").await == 3).await;
    sqlx::query("update queue.worker set paused_seen = 3").execute(&db.pool).await.unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), text(&ended.stdout)), (Some(0), "paused everything; no worker starts these jobs\n"));
    db.finish().await;
}
