//! Tests `show --logs`, which prints the logs of attempts as text and as JSON.

use tests::{Act, TestDb};

use super::{enqueue, json, on, text};

#[tokio::test]
#[ignore = "deep"]
async fn show_prints_the_logs_of_each_attempt_on_request() {
    let db = TestDb::new().await;
    let (job, other) = (enqueue(&db, Act::Ok("x".into())).await, enqueue(&db, Act::Ok("x".into())).await.to_string());
    let write = "insert into queue.log (id, attempt, at, cut, text) values ($1, 2, now(), 7, $2), ($1, 1, now(), 0, 'first')";
    sqlx::query(write).bind(job).bind("one\n    \u{1b}[31mtwo\n").execute(&db.pool).await.unwrap();
    let id = job.to_string();

    let shown = text(&on(&db, &["show", &id, "--logs"]).stdout).to_owned();
    let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
    let first = lines.iter().position(|line| line.starts_with("logged ") && line.ends_with(", attempt 1:")).unwrap();
    assert_eq!(lines[first + 1].trim(), "first");
    assert!(lines[first + 2].ends_with(", attempt 2:") && lines[first + 3].trim() == "one", "{shown}");
    assert!(!shown.contains('\u{1b}') && lines[first + 4].contains("[31mtwo"), "{shown:?}");
    assert!(!text(&on(&db, &["show", &id]).stdout).contains("logged"), "only then");
    assert!(text(&on(&db, &["show", &other, "--logs"]).stdout).contains("logged     nothing kept"));

    let document = json(&db, &["show", &id, "--logs"]);
    assert_eq!((&document["logs"][0]["text"], &document["logs"][1]["cut"]), (&"first".into(), &7.into()));
    assert_eq!(json(&db, &["show", &id]).get("logs"), None);
    db.finish().await;
}
