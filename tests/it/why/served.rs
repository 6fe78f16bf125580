//! Tests the diagnosis of a job that no worker serves.

use std::time::Duration;

use queue_core::{Job as _, JobId, operate::CauseKind};
use queue_worker::Worker;
use tests::{Act, Do, WorkerProcess, eventually};

use super::{CLI, TestDb, WORKER, ask, completes, fact, first, kinds, ok, until_first};

#[tokio::test]
#[ignore = "deep"]
async fn without_a_worker_the_last_one_is_named() {
    let db = TestDb::new().await;
    let job = ok(&db).await;
    let cause = first(&db, job, CauseKind::NoWorker).await;
    assert_eq!((fact(&cause, "workers"), fact(&cause, "last")), (&0.into(), &serde_json::Value::Null));
    assert!(cause.fix.unwrap().contains("`queue-worker run`"));
    let next = ok(&db).await;
    assert_eq!(kinds(&ask(&db, next).await), [CauseKind::NoWorker], "no job gets its turn");
    let worker = WorkerProcess::start(WORKER, &db.url, &[]);
    completes(&db, job).await;
    let pid = worker.pid();
    db.kill(worker).await;
    let job = ok(&db).await;
    let cause = until_first(&db, job, CauseKind::NoWorker).await;
    assert_eq!(cause.facts["last"]["pid"], pid, "{cause:?}");
    assert!(cause.message.contains("which served it, is silent since"), "{}", cause.message);
    db.run_while(super::worker(&db), completes(&db, job)).await;
    db.finish().await;
}

#[tokio::test]
async fn a_queue_without_a_worker_is_served_by_the_shown_command() {
    let db = TestDb::new().await;
    let other = WorkerProcess::start_with(CLI, &db.url, &["run", "--queue", "other"], &[]);
    eventually("a worker lives", async || db.count("select count(*) from queue.worker").await == 1).await;
    let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).queue("lonely-1").await.unwrap().id();
    let cause = first(&db, job, CauseKind::Unserved).await;
    assert_eq!((fact(&cause, "workers"), fact(&cause, "of_queue"), fact(&cause, "of_type")), (&1.into(), &0.into(), &1.into()));
    assert!(cause.message.starts_with("the only live worker does not serve the queue lonely-1"), "{}", cause.message);
    let fix = cause.fix.unwrap();
    let arguments: Vec<&str> = fix.split('`').nth(1).unwrap().split(' ').skip(1).collect();
    let served = WorkerProcess::start_with(CLI, &db.url, &arguments, &[]);
    completes(&db, job).await;
    served.kill();
    other.kill();
    db.finish().await;
}

#[tokio::test]
async fn an_unknown_type_or_version_is_named_with_the_known_ones() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        eventually("a worker lives", async || db.count("select count(*) from queue.worker").await == 1).await;
        let enqueue = async |sql: &'static str| sqlx::query_scalar::<_, JobId>(sql).fetch_one(&db.pool).await.unwrap();
        let strange = enqueue("select queue.enqueue('nobody_knows', '1')").await;
        let cause = first(&db, strange, CauseKind::Unserved).await;
        assert_eq!((fact(&cause, "of_queue"), fact(&cause, "of_type")), (&1.into(), &0.into()));
        assert!(
            cause.message.contains("does not know the type nobody_knows") && cause.facts["versions"].as_array().unwrap().is_empty(),
            "{cause:?}"
        );
        let newer = enqueue("select queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}', '{\"version\": 2}')").await;
        let cause = first(&db, newer, CauseKind::Unserved).await;
        assert_eq!(cause.facts["versions"], serde_json::json!([1]), "{cause:?}");
        assert!(cause.fix.unwrap().contains("version 2 of the type do"), "{}", cause.message);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_worker_that_is_shutting_down_serves_nothing() {
    let db = TestDb::new().await;
    let worker = WorkerProcess::start(WORKER, &db.url, &[("GRACE_MS", "60000")]);
    let running = super::busy(&db).await;
    worker.signal("TERM");
    eventually("it begins nothing any more", async || {
        db.count("select count(*) from queue.worker where paused_seen = 9223372036854775807").await == 1
    })
    .await;
    let job = ok(&db).await;
    let cause = until_first(&db, job, CauseKind::Unserved).await;
    assert_eq!(*fact(&cause, "draining"), 1);
    assert!(cause.message.contains("shutting down"), "{}", cause.message);
    super::go(&db).await;
    completes(&db, running).await;
    db.run_while(super::worker(&db), completes(&db, job)).await;
    db.finish().await;
}

#[tokio::test]
async fn a_worker_of_another_type_and_one_of_another_queue_do_not_serve_a_job_together() {
    let db = TestDb::new().await;
    let of_queue = Worker::new(db.pool.clone()).register::<tests::Marked>().queue("split", 1).grace(Duration::ZERO);
    let of_type = super::worker(&db).queue("elsewhere", 1);
    db.run_while(of_queue, async {
        Box::pin(db.run_while(of_type, async {
            eventually("both live", async || db.count("select count(*) from queue.worker").await == 2).await;
            let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).queue("split").await.unwrap().id();
            let cause = first(&db, job, CauseKind::Unserved).await;
            assert!(cause.message.contains("serves both the queue split and the type do"), "{}", cause.message);
        }))
        .await;
    })
    .await;
    db.finish().await;
}
