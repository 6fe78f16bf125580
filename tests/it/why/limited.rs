//! Tests the diagnosis of a job whose limit has no free permit.

use std::time::Duration;

use queue_core::{Job as _, Queue, operate::CauseKind, options::Limit};
use tests::{Act, Do, UntilGo, WorkerProcess, eventually};

use super::{TestDb, WORKER, ask, busy, completes, connect, cure, fact, first, go, ok, run, until_first};

async fn set(db: &TestDb, name: &str, limit: Limit) {
    Queue::new(&db.pool).set_limit(name, limit, Some("they asked us to")).await.unwrap();
}

/// Waits until every worker has acknowledged all limits.
async fn until_known(db: &TestDb) {
    let unknown = "select count(*) from queue.worker w join queue.bound b on b.number > w.paused_seen";
    eventually("workers know the limit", async || db.count(unknown).await == 0).await;
}

/// Marks all limits as declared in code.
async fn by_code(db: &TestDb) {
    sqlx::query("update queue.bound set by_operator = false").execute(&db.pool).await.unwrap();
}

#[tokio::test]
async fn a_limit_without_permits_is_shown_with_its_numbers_and_raised_by_the_command() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        let running = busy(&db).await;
        for is_code in [false, true] {
            set(&db, "queue:default", Limit::new().concurrency(1)).await;
            until_known(&db).await;
            if is_code {
                by_code(&db).await;
            }
            let job = ok(&db).await;
            let cause = until_first(&db, job, CauseKind::Limited).await;
            assert_eq!(
                (fact(&cause, "limit"), fact(&cause, "used"), fact(&cause, "concurrency")),
                (&"queue:default".into(), &1.into(), &1.into())
            );
            assert_eq!(*fact(&cause, "by_operator"), !is_code);
            assert!(
                cause.message.contains("1 of 1 are taken") && cause.message.contains("they asked us to") != is_code,
                "{}",
                cause.message
            );
            cure(&db, &cause).await;
            completes(&db, job).await;
            run(&mut connect(&db).await, "delete from queue.bound").await;
        }
        go(&db).await;
        completes(&db, running).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn an_exhausted_rate_shows_when_the_next_job_may_begin() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        eventually("a worker lives", async || db.count("select count(*) from queue.worker").await == 1).await;
        set(&db, "queue:default", Limit::new().rate(1, Duration::from_hours(1))).await;
        until_known(&db).await;
        // If a rate permit expires before the claimed job starts, the job is released, but the permit still counts against the rate. The
        // first job may therefore wait as well.
        let (first, job) = (ok(&db).await, ok(&db).await);
        let cause = until_first(&db, job, CauseKind::Limited).await;
        assert!(cause.facts["next_ms"].as_f64().unwrap() > 3_000_000.0 && cause.message.contains("may start in "), "{cause:?}");
        cure(&db, &cause).await;
        completes(&db, first).await;
        completes(&db, job).await;
        set(&db, "queue:default", Limit::new().rate(1, Duration::from_hours(1))).await;
        until_known(&db).await;
        by_code(&db).await;
        let (second, job) = (ok(&db).await, ok(&db).await);
        let cause = until_first(&db, job, CauseKind::Limited).await;
        cure(&db, &cause).await;
        completes(&db, second).await;
        completes(&db, job).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_key_without_permits_is_distinguished_from_those_with_some() {
    let db = TestDb::new().await;
    let fair = async |key: &str, act: Act| Do { act }.enqueue(&db.pool).fair(key).await.unwrap().id();
    db.run_while(super::worker(&db), async {
        let limit = ["limits", "set", "queue:default", "--per-key", "--concurrency", "1"];
        assert!(super::cli(&db, &limit).status.success());
        assert!(super::cli(&db, &["limits", "set", "queue:default", "--key", "it's acme", "--concurrency", "1"]).status.success());
        until_known(&db).await;
        let running = UntilGo {}.enqueue(&db.pool).fair("it's acme").await.unwrap().id();
        eventually("it runs", async || db.count("select count(*) from effect").await == 1).await;
        let job = fair("it's acme", Act::Ok(String::new())).await;
        completes(&db, fair("other", Act::Ok(String::new())).await).await;
        let cause = until_first(&db, job, CauseKind::Limited).await;
        assert_eq!((fact(&cause, "keyed"), fact(&cause, "key"), fact(&cause, "used")), (&true.into(), &"it's acme".into(), &1.into()));
        cure(&db, &cause).await;
        completes(&db, job).await;
        go(&db).await;
        completes(&db, running).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_limit_that_a_worker_does_not_know_yet_names_that_worker() {
    let db = TestDb::new().await;
    let stands = WorkerProcess::start(WORKER, &db.url, &[("TTL_MS", "20000")]);
    eventually("it lives", async || db.count("select count(*) from queue.worker").await == 1).await;
    stands.signal("STOP");
    set(&db, "type:do", Limit::new().concurrency(5)).await;
    db.run_while(super::worker(&db), async {
        eventually("both live", async || db.count("select count(*) from queue.worker").await == 2).await;
        let job = ok(&db).await;
        let cause = until_first(&db, job, CauseKind::LimitUnknown).await;
        eventually("one does not know it", async || {
            first(&db, job, CauseKind::LimitUnknown).await.facts["awaits"].as_array().is_some_and(|awaits| awaits.len() == 1)
        })
        .await;
        let awaits = first(&db, job, CauseKind::LimitUnknown).await.facts["awaits"].clone();
        assert_eq!(awaits[0]["pid"], stands.pid(), "{cause:?}");
        assert!(cause.fix.unwrap().contains("stop these workers"));
        stands.signal("CONT");
        completes(&db, job).await;
    })
    .await;
    drop(stands);
    db.finish().await;
}

#[tokio::test]
async fn a_session_that_has_a_limit_locked_is_named_and_ended_by_the_statement() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        eventually("a worker lives", async || db.count("select count(*) from queue.worker").await == 1).await;
        set(&db, "type:do", Limit::new().concurrency(5)).await;
        until_known(&db).await;
        completes(&db, ok(&db).await).await;
        let mut holder = connect(&db).await;
        run(&mut holder, "set application_name = 'by hand'; begin; select from queue.limiter for update").await;
        let job = ok(&db).await;
        let cause = until_first(&db, job, CauseKind::LimitLocked).await;
        assert_eq!((fact(&cause, "limit"), &cause.facts["sessions"][0]["application"]), (&"type:do".into(), &"by hand".into()));
        // A claim that is waiting for the lock on the limit has locked the job's entry. The reported session is the session that has
        // locked the limit.
        let mut beside = None;
        eventually("a claim waits for it", async || {
            beside = ask(&db, job).await.causes.into_iter().find(|cause| cause.kind == CauseKind::Locked);
            beside.is_some()
        })
        .await;
        let beside = beside.unwrap();
        assert!(beside.message.contains("which waits for session") && beside.fix == cause.fix, "{beside:?}");
        cure(&db, &cause).await;
        completes(&db, job).await;
    })
    .await;
    db.finish().await;
}
