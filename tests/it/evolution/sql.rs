//! Tests payload versions in SQL: the option `version`, and uniqueness keys whose holder has a payload of another version.

use queue_core::{Job as _, JobId, JobState, OnConflict};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::TestDb;

use super::{of_third, output, to, to_all};

async fn enqueue(on: &mut PgConnection, arguments: &str) -> sqlx::Result<JobId> {
    sqlx::query_scalar(AssertSqlSafe(format!("select queue.enqueue({arguments})"))).fetch_one(on).await
}

async fn stored(db: &TestDb, id: JobId) -> String {
    let stored = "select l.job_type from queue.job j join queue.lane l using (lane) where j.id = $1 limit 1";
    sqlx::query_scalar(stored).bind(id).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn an_enqueue_in_sql_names_its_version_or_gets_the_first() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    for (arguments, name) in [
        (r#"'release_mail', '{"to": "ada"}'"#, "release_mail"),
        (r#"'release_mail', '{"to": "ada"}', '{"version": 1}'"#, "release_mail"),
        (r#"'release_mail', '{"to": "ada"}', '{"version": null}'"#, "release_mail"),
        (r#"'release_mail', '{"to": ["ada"]}', '{"version": 2}'"#, "release_mail@2"),
        (r#"'release_mail', '{"to": ["ada"]}', '{"version": 2, "key": "k"}'"#, "release_mail@2"),
        (r#"'release_mail', '{"to": ["ada"]}', '{"version": 9999}'"#, "release_mail@9999"),
    ] {
        let job = enqueue(&mut on, arguments).await.unwrap();
        assert_eq!(stored(&db, job).await, name, "{arguments}");
    }
    for version in ["0", "-1", "10000", "1.5", "\"2\"", "true", "[2]"] {
        let error = enqueue(&mut on, &format!("'release_mail', '{{}}', '{{\"version\": {version}}}'")).await.unwrap_err();
        assert!(error.to_string().contains("the option version must be a whole number from 1 to 9999"), "{error}");
    }
    for arguments in ["'release_mail@2', '{}', '{\"queue\": \"q\"}'", "'release_mail@2', '{}', '{}'", "'release_mail@2', '{}'"] {
        let error = enqueue(&mut on, arguments).await.unwrap_err();
        let message = error.to_string();
        assert!(message.contains("the version of a job type is set with the option version, not in its name"), "{arguments}: {message}");
    }
    for name in ["a@", "a@1", "a@02", "a@10000", "a@x", "@2", "a@2@3"] {
        let error = enqueue(&mut on, &format!("'{name}', '{{}}'")).await.unwrap_err();
        assert!(error.to_string().contains("is set with the option version"), "{name}: {error}");
    }
    let error = enqueue(&mut on, "'a b', '{}'").await.unwrap_err();
    assert!(error.to_string().contains("lane_job_type_is_a_name"), "{error}");
    assert_eq!(db.count("select count(*) from queue.job").await, 6);
    db.finish().await;
}

#[tokio::test]
async fn a_uniqueness_key_spans_all_versions_and_a_replaced_job_has_its_payloads_version() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let hour = std::time::Duration::from_hours(1);
    let replace = OnConflict::Replace;
    let ready = to("ada").enqueue(&mut on).unique("ready").await.unwrap().id();
    let scheduled = to("ada").enqueue(&mut on).unique("scheduled").after(hour).await.unwrap().id();
    let head = to("ada").enqueue(&mut on).key("line").await.unwrap().id();
    let blocked = to("ada").enqueue(&mut on).unique("blocked").key("line").await.unwrap().id();
    assert_eq!(to_all(&["bea"]).enqueue(&mut on).unique("ready").await.unwrap().id(), ready, "kept");
    assert_eq!(stored(&db, ready).await, "release_mail", "and unchanged");
    for (key, job) in [("ready", ready), ("scheduled", scheduled), ("blocked", blocked)] {
        assert_eq!(to_all(&["bea"]).enqueue(&mut on).unique(key).on_conflict(replace).await.unwrap().id(), job);
        assert_eq!(stored(&db, job).await, "release_mail@2", "{key}");
        assert_eq!(db.count(&format!("select version::bigint from queue.jobs where id = {job}")).await, 2, "{key}: its entry has the same");
    }
    // In the other direction, a payload of an older version replaces a payload of a newer version before the job has started.
    assert_eq!(to("cid").enqueue(&mut on).unique("ready").on_conflict(replace).await.unwrap().id(), ready);
    assert_eq!(stored(&db, ready).await, "release_mail");
    assert_eq!(db.count(&format!("select count(*) from queue.ready where id = {ready} and seq = id")).await, 1, "in its place");
    assert_eq!(db.state(scheduled).await, Some(JobState::Scheduled));
    queue_core::JobRef::from_id(scheduled).run_now(&mut on).await.unwrap();
    db.run_until_idle(of_third(&db)).await;
    for (job, expected) in [(ready, "cid about none from 1"), (scheduled, "bea about none from 2"), (blocked, "bea about none from 2")] {
        assert_eq!(output(&db, job).await, format!("third: {expected}"));
    }
    assert_eq!(output(&db, head).await, "third: ada about none from 1");
    db.finish().await;
}

#[tokio::test]
async fn a_quarantined_job_that_is_replaced_stays_quarantined() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let job = to("ada").enqueue(&mut on).unique("key").await.unwrap().id();
    let solo = "with solo as (select queue.ensure_lane('default', 'release_mail', 100, true) as lane)
        update queue.ready r set lane = s.lane, crashes = 1, attempts = 2 from solo s";
    sqlx::query(solo).execute(&mut on).await.unwrap();
    to_all(&["bea"]).enqueue(&mut on).unique("key").on_conflict(OnConflict::Replace).await.unwrap();
    let kept = "select count(*) from queue.ready r join queue.lane l using (lane)
        where l.solo and l.job_type = 'release_mail@2' and r.crashes = 1 and r.attempts = 2";
    assert_eq!(db.count(kept).await, 1);
    assert_eq!(stored(&db, job).await, "release_mail@2");
    assert_eq!(db.state(job).await, Some(JobState::Ready), "it is found where it is");
    db.finish().await;
}
