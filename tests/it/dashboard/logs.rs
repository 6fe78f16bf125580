//! Tests job logs on the dashboard and in its API. The logs are escaped, shown per attempt, and hidden together with payloads.

use queue_core::JobState;
use queue_worker::dashboard::Options;
use tests::TestDb;

use super::Served;
use crate::logs::{Say, collect, say};

#[tokio::test]
async fn the_dashboard_shows_logs_as_text_of_each_attempt_unless_payloads_are_hidden() {
    let (db, _guard) = (TestDb::new().await, collect());
    let job = say(&db, "retry", "<script>alert(1)</script>", 1).await;
    db.run_while(db.worker().register::<Say>(), db.until(job, JobState::Completed)).await;

    let served = Served::new(&db).await;
    let client = &served.client;
    let page = String::from_utf8(client.get(&format!("/jobs/{job}")).await.body).unwrap();
    assert!(!page.contains("<script>alert") && page.contains("alert(1)"), "{page}");
    assert_eq!(page.matches("<details><summary>attempt ").count(), 2, "{page}");
    let answer = client.get(&format!("/api/v1/jobs/{job}/logs")).await;
    let logs: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert!(answer.status == 200 && logs[1]["attempt"] == 2 && logs[0]["cut"] == 0, "{logs}");
    assert!(logs[0]["text"].as_str().unwrap().contains("<script>alert(1)</script>"), "{logs}");
    assert_eq!(client.get("/api/v1/jobs/7/logs").await.status, 404);
    assert_eq!(client.get("/api/v1/jobs/x/logs").await.status, 404);

    for options in [Options::default().hide_payloads(true), Options::default().redact("logs_say", ["text"])] {
        let served = Served::with(&db, options).await;
        let client = &served.client;
        let page = String::from_utf8(client.get(&format!("/jobs/{job}")).await.body).unwrap();
        let logs = String::from_utf8(client.get(&format!("/api/v1/jobs/{job}/logs")).await.body).unwrap();
        assert!(!page.contains("::logs: ") && logs.contains("(hidden)") && !logs.contains("alert"), "{logs}");
    }
    db.finish().await;
}
