//! Tests `history`, which prints counts of attempt outcomes by job type or by time, as text and as JSON.

use queue_core::Job as _;
use tests::{Act, Do, TestDb};

use super::{enqueue, failed, json, on, text};

#[tokio::test]
#[ignore = "deep"]
async fn history_is_shown_by_type_or_by_time_and_as_json() {
    let db = TestDb::new().await;
    let nothing = on(&db, &["history", "--last", "2h"]);
    assert_eq!(text(&nothing.stdout).trim(), "no attempt finished in the last 2h");
    for _ in 0..3 {
        enqueue(&db, Act::Sleep(20)).await;
    }
    enqueue(&db, Act::Terminal("no way".into())).await;
    Do { act: Act::PanicLate }.enqueue(&db.pool).queue("mail").max_attempts(1).await.unwrap();
    db.run_until_idle(db.worker()).await;

    let shown = on(&db, &["history"]);
    let lines: Vec<Vec<&str>> = text(&shown.stdout).lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..5], ["QUEUE", "TYPE", "COMPLETED", "FAILED", "DEAD"], "{lines:?}");
    assert_eq!((&lines[1][..5], &lines[2][..5]), (&["default", "do", "3", "1", "1"][..], &["mail", "do", "0", "1", "1"][..]));
    assert!(lines[1][5].parse::<f64>().unwrap() > 0.0 && lines[1][7].ends_with('s'), "{lines:?}");
    assert!(text(&shown.stdout).contains("further outcomes: 1 panicked"), "{lines:?}");

    let by_time = on(&db, &["history", "--by", "time", "--last", "10m", "--queue", "default"]);
    assert!(text(&by_time.stdout).starts_with("SINCE"), "{}", text(&by_time.stdout));
    let apart = json(&db, &["history", "--type", "do"]);
    let first = &apart["history"][0];
    assert_eq!((&first["queue"], &first["completed"], &first["run"]["count"]), (&"default".into(), &3.into(), &4.into()), "{apart}");
    assert!(first["run"]["p99_ms"].as_f64().unwrap() >= 20.0 && first["seconds"].as_f64().unwrap() >= 3600.0, "{apart}");
    let steps = json(&db, &["history", "--by", "time", "--step", "10s"]);
    let completed: u64 = steps["history"].as_array().unwrap().iter().map(|step| step["completed"].as_u64().unwrap()).sum();
    assert_eq!(completed, 3, "{steps}");
    db.finish().await;
}

#[tokio::test]
async fn invalid_options_of_history_are_refused() {
    let db = TestDb::new().await;
    for wrong in
        [&["history", "--step", "1m"][..], &["history", "--last", "0s"], &["history", "--by", "queue"], &["history", "--last", "x"]]
    {
        let (code, message) = failed(&on(&db, wrong));
        assert_eq!(code, Some(2), "{wrong:?}: {message}");
    }
    db.finish().await;
}
