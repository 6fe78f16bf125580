//! Tests schedules on the command line.

use queue_core::Queue;
use serde_json::Value;
use tests::{TestDb, eventually};

use super::{CLI, command, failed, json, on, text};

#[tokio::test]
#[ignore = "deep"]
async fn a_schedule_is_created_shown_paused_run_skipped_and_deleted() {
    let db = TestDb::new().await;
    assert_eq!(text(&on(&db, &["cron", "list"]).stdout), "there are no schedules\n");
    let payload = "{\"act\": {\"Ok\": \"secret\"}}";
    let add = [
        "cron",
        "add",
        "yearly",
        "--type",
        "do",
        "--payload",
        payload,
        "--cron",
        "30 4 24 12 *",
        "--tz",
        "Europe/Berlin",
        "--jitter",
        "5m",
    ];
    assert_eq!(text(&on(&db, &add).stdout), "yearly is scheduled\n");
    assert!(text(&on(&db, &["cron", "list"]).stdout).contains("yearly"));
    db.run_while(db.worker(), async {
        eventually("its next tick is known", async || Queue::new(&db.pool).schedule("yearly").find().await.unwrap().next_at.is_some())
            .await;
        let next = json(&db, &["cron", "next", "yearly", "--count", "2"]);
        assert!(next["next"][0].as_str().unwrap().ends_with("-12-24T03:30:00Z") && next["next"][1].is_string(), "{next}");
        assert_eq!(json(&db, &["cron", "skip", "yearly"])["skips"], next["next"][0]);
        assert_eq!(json(&db, &["cron", "next", "yearly", "--count", "1"])["next"][0], next["next"][1]);
        let job = json(&db, &["cron", "run", "yearly"])["enqueued"].as_str().unwrap().parse().unwrap();
        db.until(job, queue_core::JobState::Completed).await;
    })
    .await;
    assert_eq!(json(&db, &["cron", "pause", "yearly"])["paused"], true);
    let shown = json(&db, &["cron", "show", "yearly"]);
    assert!(
        shown["schedule"]["paused_at"].is_string() && shown["fires"][0]["outcome"] == "run_now" && shown["next"] == serde_json::json!([]),
        "{shown}"
    );
    let shown = on(&db, &["cron", "show", "yearly"]);
    assert!(text(&shown.stdout).contains("state paused") && !text(&shown.stdout).contains("secret"), "{}", text(&shown.stdout));
    assert_eq!(json(&db, &["cron", "resume", "yearly"])["resumed"], true);
    assert_eq!(json(&db, &["cron", "list"])["schedules"].as_array().map(Vec::len), Some(1));
    assert_eq!(text(&on(&db, &["cron", "remove", "yearly"]).stdout), "yearly is removed\n");
    for (arguments, code, what) in [
        (vec!["cron", "pause", "yearly"], 3, "there is no schedule `yearly`"),
        (vec!["cron", "add", "a", "--type", "do", "--cron", "soon"], 2, "cannot be read"),
        (vec!["cron", "add", "a", "--type", "do"], 2, "--cron"),
        (vec!["cron", "add", "a", "--type", "do", "--every", "1month"], 2, "use `--cron"),
        (vec!["cron", "next", "--every", "2M"], 2, "use `--cron"),
        (vec!["cron", "add", "a", "--type", "do", "--every", "1h", "--cron", "* * * * *"], 2, "--cron"),
        (vec!["cron", "add", "a", "--type", "do", "--every", "1h", "--missed", "all"], 2, "catch_up(1)"),
        (vec!["cron", "add", "a", "--type", "do", "--every", "1h", "--payload", "{"], 2, "not JSON"),
    ] {
        let (ended, message) = failed(&on(&db, &arguments));
        assert!(ended == Some(code) && message.contains(what), "{arguments:?}: {ended:?} {message}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_schedule_is_made_for_a_payload_of_a_later_version() {
    let db = TestDb::new().await;
    let add =
        ["cron", "add", "mail", "--type", "release_mail", "--payload", r#"{"to": ["ada"]}"#, "--payload-version", "2", "--every", "1d"];
    assert_eq!(text(&on(&db, &add).stdout), "mail is scheduled\n");
    let job: queue_core::JobId = json(&db, &["cron", "run", "mail"])["enqueued"].as_str().unwrap().parse().unwrap();
    assert_eq!(json(&db, &["show", &job.to_string()])["version"], 2);
    let (ended, message) = failed(&on(&db, &["cron", "add", "a", "--type", "do", "--every", "1h", "--payload-version", "0"]));
    assert!(ended == Some(2) && message.contains("from 1 to 9999"), "{message}");
    db.finish().await;
}

#[test]
fn an_expression_is_tried_without_a_database() {
    let next =
        command(CLI, &["cron", "next", "--cron", "0 12 * * *", "--tz", "Asia/Kathmandu", "--count", "3", "--json"]).output().unwrap();
    let next: Value = serde_json::from_slice(&next.stdout).unwrap();
    let ticks: Vec<&str> = next["next"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(ticks.len() == 3 && ticks.iter().all(|tick| tick.ends_with("T06:15:00Z")), "{ticks:?}");
}
