//! Tests a reader's diagnosis of a job that is not running. The diagnosis contains no payloads, and shows details only of sessions that
//! the reader may see.

use queue_core::{JobId, Queue, operate::CauseKind};
use sqlx::Executor as _;

use super::RoledStore;

#[tokio::test]
#[ignore = "deep"]
async fn a_reader_is_shown_causes_without_payloads_and_only_visible_sessions() {
    let store = RoledStore::new().await;
    let enqueue = "select queue.enqueue('do', '{\"secret\": \"do-not-show\"}', '{\"expires_in\": 3600}')";
    let job: JobId = sqlx::query_scalar(enqueue).fetch_one(&store.db.pool).await.unwrap();
    let mut holder = store.connect("postgres").await;
    holder.execute("set application_name = 'by hand'; begin; select from queue.ready for update").await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    for (user, sees) in [("viewer", false), ("ops", false), ("watcher", true), ("migrator", false)] {
        if user == "watcher" {
            store.run("create role watcher login; grant queue_reader, pg_read_all_stats to watcher").await;
        }
        let why = Queue::new(&store.pool(user)).job(job).why().await.unwrap();
        assert_eq!((why.causes[0].kind, why.causes[1].kind), (CauseKind::NoWorker, CauseKind::Locked), "{user}: {why:#?}");
        let session = &why.causes[1].facts["sessions"][0];
        assert_eq!((&session["application"], &session["role"]), (&"by hand".into(), &"postgres".into()), "{user}");
        assert_eq!(
            (session["visible"].as_bool(), session.get("since").is_some(), session.get("state").is_some()),
            (Some(sees), sees, sees),
            "{user}"
        );
        assert_eq!(why.causes[1].message.contains("more details not visible to your role"), !sees, "{user}: {}", why.causes[1].message);
        assert!(!serde_json::to_string(&why).unwrap().contains("do-not-show"), "{user}");
    }
    for user in ["web", "runner", "mailer", "nobody_else"] {
        store.is_denied(user, &format!("select * from queue.why({job})")).await;
        store.is_denied(user, &format!("select * from queue.why_causes({job})")).await;
    }
    // Only the owner may call the functions for the parts of a diagnosis.
    store.is_denied("viewer", "select queue.why_absent(7)").await;
    store.is_denied("viewer", &format!("select * from queue.why_running({job})")).await;
    // A reader also sees the session that locks the table.
    holder.execute("lock table queue.ready in access exclusive mode").await.unwrap();
    let why = Queue::new(&store.pool("viewer")).job(job).why().await.unwrap();
    assert_eq!((why.first().kind, &why.first().facts["sessions"][0]["application"]), (CauseKind::TableLocked, &"by hand".into()));
    store.server.stop().unwrap();
}
