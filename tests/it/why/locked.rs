//! Tests the diagnosis of a job when another session holds a lock.

use std::time::Duration;

use queue_core::{Job as _, JobId, Queue, operate::CauseKind};
use sqlx::Connection as _;
use tests::{Act, Do, eventually, server::TestServer};

use super::{TestDb, ask, completes, connect, cure, fact, first, kinds, ok, run, until_first};

/// Returns a session that has run `sql` in a transaction that stays open, and the session's pid.
async fn holder(db: &TestDb, sql: &str) -> (sqlx::PgConnection, i32) {
    let mut holder = connect(db).await;
    let pid = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut holder).await.unwrap();
    run(&mut holder, "set application_name = 'by hand'").await;
    run(&mut holder, "begin").await;
    run(&mut holder, sql).await;
    (holder, pid)
}

#[tokio::test]
async fn a_session_that_has_the_entry_locked_in_any_way_is_named_and_ended_by_the_statement() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        eventually("a worker lives", async || db.count("select count(*) from queue.worker").await == 1).await;
        for how in [
            "select from queue.ready for update",
            "select from queue.ready for share",
            "delete from queue.ready",
            "savepoint s; delete from queue.ready",
            "select from queue.ready for update; savepoint s; delete from queue.ready",
        ] {
            // The job is enqueued under a table lock, so that claims wait until the commit. If a claim is still faster than the session
            // that locks the job, the round is skipped.
            let mut beside = connect(&db).await;
            let mut tx = beside.begin().await.unwrap();
            run(&mut tx, "lock table queue.ready in exclusive mode").await;
            let job = Do { act: Act::Ok(String::new()) }.enqueue(&mut *tx).await.unwrap().id();
            let (mut holder, pid) = {
                let mut holder = connect(&db).await;
                let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut holder).await.unwrap();
                (holder, pid)
            };
            tx.commit().await.unwrap();
            run(&mut holder, "set application_name = 'by hand'; begin").await;
            run(&mut holder, how).await;
            if ask(&db, job).await.state != Some(queue_core::JobState::Ready) {
                continue;
            }
            let cause = until_first(&db, job, CauseKind::Locked).await;
            assert_eq!(cause.facts["sessions"][0]["pid"], pid, "{how}: {cause:?}");
            assert_eq!(
                (&cause.facts["sessions"][0]["application"], &cause.facts["sessions"][0]["visible"]),
                (&"by hand".into(), &true.into())
            );
            assert!(
                cause.message.contains("idle in transaction") && cause.message.contains("in a transaction since 2"),
                "{}",
                cause.message
            );
            cure(&db, &cause).await;
            completes(&db, job).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_locked_scheduled_or_blocked_job_is_reported_as_locked_too() {
    let db = TestDb::new().await;
    let soon = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).after(Duration::from_secs(1)).await.unwrap().id();
    let (_holder, pid) = holder(&db, "select from queue.scheduled for update").await;
    let keyed = async || Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key("k").await.unwrap();
    let (head, blocked) = (keyed().await, keyed().await.id());
    let (_other, other) = holder(&db, "select from queue.blocked for update").await;
    db.run_while(super::worker(&db), async {
        completes(&db, head.id()).await;
        for (job, pid) in [(soon, pid), (blocked, other)] {
            let cause = until_first(&db, job, CauseKind::Locked).await;
            assert_eq!(cause.facts["sessions"][0]["pid"], pid, "{cause:?}");
            cure(&db, &cause).await;
            completes(&db, job).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_released_or_momentary_lock_is_no_cause() {
    let db = TestDb::new().await;
    let job = ok(&db).await;
    let why = async |moment: &str| {
        let sql = format!("select array_agg(kind) from queue.why({job}, moment => '{moment}')");
        sqlx::query_scalar::<_, Vec<String>>(sqlx::AssertSqlSafe(sql)).fetch_one(&db.pool).await.unwrap()
    };
    let (mut holder, _) = holder(&db, "select from queue.ready for update").await;
    assert_eq!(why("0 s").await, ["no_worker", "locked"]);
    assert_eq!(why("1 h").await, ["no_worker"], "who has begun within a moment");
    run(&mut holder, "rollback").await;
    assert_eq!(why("0 s").await, ["no_worker"], "what is left of a lock is none");
    run(&mut holder, "begin; select from queue.lane for update").await;
    assert_eq!(why("0 s").await, ["no_worker"], "who has something else locked");
    let other = ok(&db).await;
    run(&mut holder, &format!("rollback; begin; select from queue.ready where id = {other} for update")).await;
    assert_eq!(why("0 s").await, ["no_worker"], "who has another entry locked");
    run(&mut holder, "rollback").await;
    db.run_while(super::worker(&db), completes(&db, job)).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_prepared_transaction_is_named_and_rolled_back_by_the_statement() {
    let server = TestServer::start_with(&["fsync=off", "max_prepared_transactions=2"]).await.unwrap();
    let db = server.database("prepared").await.unwrap();
    let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
    let other = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
    let mut holder = db.pool.acquire().await.unwrap();
    for (job, name) in [(other, "other"), (job, "it''s lost")] {
        run(&mut holder, "begin").await;
        run(&mut holder, &format!("select from queue.ready where id = {job} for update")).await;
        run(&mut holder, &format!("prepare transaction '{name}'")).await;
    }
    let why = Queue::new(&db.pool).job(other).why().await.unwrap();
    assert_eq!(why.causes[1].fix.as_deref(), Some("rollback prepared 'other'"), "{why:#?}");
    let why = Queue::new(&db.pool).job(job).why().await.unwrap();
    assert_eq!(kinds(&why), [CauseKind::NoWorker, CauseKind::Locked], "{why:#?}");
    assert!(why.causes[1].message.contains("the prepared transaction `it's lost`"), "{}", why.causes[1].message);
    let in_sql: String =
        sqlx::query_scalar("select string_agg(message, '; ') from queue.why($1)").bind(job).fetch_one(&db.pool).await.unwrap();
    assert!(in_sql.contains("prepared transaction 'it''s lost'"), "{in_sql}");
    run(&mut holder, why.causes[1].fix.as_deref().unwrap()).await;
    let why = Queue::new(&db.pool).job(job).why().await.unwrap();
    assert_eq!(kinds(&why), [CauseKind::NoWorker], "{why:#?}");
    server.stop().unwrap();
}

#[tokio::test]
async fn a_session_that_has_a_table_locked_or_waits_for_it_is_named_meanwhile() {
    let db = TestDb::new().await;
    let job = ok(&db).await;
    for table in ["ready", "job", "lease", "worker"] {
        let (mut holding, pid) = holder(&db, &format!("lock table queue.{table} in access exclusive mode")).await;
        let cause = first(&db, job, CauseKind::TableLocked).await;
        assert_eq!((&cause.facts["sessions"][0]["pid"], &cause.facts["tables"][0]), (&pid.into(), &table.into()), "{cause:?}");
        cure(&db, &cause).await;
        assert!(holding.ping().await.is_err(), "it was ended");
        // The client receives the termination error before the server releases the session's locks.
        until_first(&db, job, CauseKind::NoWorker).await;
    }
    // A session that is waiting for the table blocks all later sessions. The cause is the session that holds the table.
    let (mut reads, pid) = holder(&db, "select from queue.ready").await;
    let mut waits = connect(&db).await;
    run(&mut waits, "begin").await;
    let waiting =
        tokio::spawn(async move { sqlx::query("lock table queue.ready in access exclusive mode").execute(&mut waits).await.map(drop) });
    let cause = until_first(&db, job, CauseKind::TableLocked).await;
    assert_eq!(cause.facts["sessions"][0]["waits_for"], serde_json::json!([pid]), "{cause:?}");
    cure(&db, &cause).await;
    waiting.await.unwrap().unwrap();
    assert!(reads.ping().await.is_err(), "it was ended");
    db.run_while(super::worker(&db), completes(&db, job)).await;
    db.finish().await;
}

#[tokio::test]
async fn an_uncommitted_job_is_reported_with_the_sessions_that_may_have_enqueued_it() {
    let db = TestDb::new().await;
    let mut producer = connect(&db).await;
    run(&mut producer, "set application_name = 'shop'").await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut producer).await.unwrap();
    let mut tx = producer.begin().await.unwrap();
    let job = Do { act: Act::Ok(String::new()) }.enqueue(&mut *tx).await.unwrap().id();
    let cause = first(&db, job, CauseKind::NoSuchJob).await;
    assert_eq!((&cause.facts["sessions"][0]["pid"], cause.facts["sessions"].as_array().unwrap().len()), (&pid.into(), 1), "{cause:?}");
    assert!(
        cause.message.contains("had begun before and has enqueued jobs") && cause.fix.as_deref() == Some("commit there, and try again")
    );
    let later = sqlx::query_scalar("select queue.next_id() + (3000::bigint << 20)").fetch_one(&db.pool).await.unwrap();
    assert!(fact(&first(&db, JobId(later), CauseKind::NoSuchJob).await, "sessions").is_null(), "an id that is yet to come");
    tx.commit().await.unwrap();
    first(&db, job, CauseKind::NoWorker).await;
    db.run_while(super::worker(&db), completes(&db, job)).await;
    let earlier = JobId(job.0 - (10_000 << 20));
    let (_holder, _) = holder(&db, "select queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}')").await;
    let cause = first(&db, earlier, CauseKind::NoSuchJob).await;
    assert!(fact(&cause, "sessions").is_null(), "it began after that id was given out: {cause:?}");
    db.finish().await;
}
