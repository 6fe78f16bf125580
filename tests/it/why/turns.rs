//! Tests the diagnosis of a job that is behind other jobs, and of a job that can start.

use std::time::Duration;

use queue_core::{Job as _, JobId, operate::CauseKind};
use queue_worker::Worker;
use tests::{Act, Do, WorkerProcess, eventually};

use super::{TestDb, WORKER, ask, busy, completes, connect, cure, fact, first, go, kinds, ok, run, until_first};

fn one_at_a_time(db: &TestDb) -> Worker {
    super::worker(db).concurrency(1)
}

async fn of_priority(db: &TestDb, priority: i16) -> JobId {
    Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).priority(priority).await.unwrap().id()
}

#[tokio::test]
async fn jobs_queued_before_it_are_counted_and_those_of_higher_priority_first() {
    let db = TestDb::new().await;
    db.run_while(one_at_a_time(&db), async {
        let done = ok(&db).await;
        completes(&db, done).await;
        busy(&db).await;
        for _ in 0..5 {
            ok(&db).await;
        }
        let job = ok(&db).await;
        let cause = until_first(&db, job, CauseKind::Behind).await;
        let ready = db.count(&format!("select count(*) from queue.ready where id < {job}")).await;
        assert_eq!((fact(&cause, "ahead"), fact(&cause, "partial")), (&ready.into(), &false.into()), "{cause:?}");
        assert!(cause.facts["per_s"].as_f64().unwrap() > 0.0 && cause.facts["held"].as_i64().unwrap() > 0, "{cause:?}");
        assert!(cause.message.contains("complete per second, so it starts in about"), "{}", cause.message);
        let higher = of_priority(&db, 150).await;
        of_priority(&db, 50).await;
        eventually("it is not claimed", async || db.count(&format!("select count(*) from queue.ready where id = {higher}")).await == 1)
            .await;
        let cause = first(&db, job, CauseKind::Starved).await;
        assert_eq!(*fact(&cause, "higher"), 1, "{cause:?}");
        assert_eq!(kinds(&ask(&db, job).await), [CauseKind::Starved, CauseKind::Behind]);
        assert_eq!(kinds(&ask(&db, higher).await), [CauseKind::Nothing], "the first of the highest priority");
        // With priority 200, the job starts before the job with priority 150.
        let fix = cause.fix.as_deref().unwrap().replace("--to 101", "--to 200");
        assert!(super::shell(&db, fix.split('`').nth(1).unwrap()).status.success());
        assert!(!kinds(&ask(&db, job).await).contains(&CauseKind::Starved), "it goes first");
        go(&db).await;
        completes(&db, job).await;
    })
    .await;
    db.run_until_idle(super::worker(&db)).await;
    db.finish().await;
}

#[tokio::test]
async fn the_pace_is_computed_from_completed_jobs_of_its_lane() {
    let db = TestDb::new().await;
    let pace = async |job_type: &str| {
        let of = format!("select per_s from queue.why_pace(queue.lane_id('default', '{job_type}', 100, false))");
        sqlx::query_scalar::<_, Option<f64>>(sqlx::AssertSqlSafe(of)).fetch_one(&db.pool).await.unwrap()
    };
    assert_eq!(pace("do").await, None);
    db.run_while(super::worker(&db), async {
        let plain = ok(&db).await;
        let retried = Do { act: Act::FailUntil(2) }.enqueue(&db.pool).await.unwrap().id();
        completes(&db, plain).await;
        completes(&db, retried).await;
    })
    .await;
    let cancelled = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap();
    cancelled.cancel(&db.pool).await.unwrap();
    assert!(pace("do").await.is_some_and(|per_s| (per_s * 60.0 - 2.0).abs() < 0.01), "two in a minute");
    assert_eq!(pace("marked").await, None, "another lane");
    db.finish().await;
}

#[tokio::test]
async fn higher_priorities_that_cannot_begin_do_not_delay_it() {
    let db = TestDb::new().await;
    db.run_while(one_at_a_time(&db), async {
        let running = busy(&db).await;
        let job = ok(&db).await;
        run(&mut connect(&db).await, "select queue.enqueue('nobody_knows', '1', '{\"priority\": 200}')").await;
        assert!(!kinds(&ask(&db, job).await).contains(&CauseKind::Starved), "no worker of its serves them");
        run(&mut connect(&db).await, "select queue.enqueue('marked', '1', '{\"priority\": 200, \"queue\": \"other\"}')").await;
        assert!(!kinds(&ask(&db, job).await).contains(&CauseKind::Starved), "another queue");
        let mut others = connect(&db).await;
        run(&mut others, "update queue.worker set types = types || '{nobody_knows}'").await;
        assert!(kinds(&ask(&db, job).await).contains(&CauseKind::Starved));
        run(&mut others, "insert into queue.paused (queue, job_type, id) values ('*', 'nobody_knows', 0)").await;
        assert!(!kinds(&ask(&db, job).await).contains(&CauseKind::Starved), "they are paused");
        run(&mut others, "delete from queue.paused; select queue.set_limit('type:nobody_knows', 0)").await;
        assert!(!kinds(&ask(&db, job).await).contains(&CauseKind::Starved), "a limit has no room for them");
        run(&mut others, "select queue.unset_limit('type:nobody_knows')").await;
        go(&db).await;
        completes(&db, running).await;
        completes(&db, job).await;
    })
    .await;
    run(
        &mut connect(&db).await,
        "with gone as (delete from queue.ready returning id) delete from queue.job j using gone g where j.id = g.id",
    )
    .await;
    db.finish().await;
}

#[tokio::test]
async fn for_a_fair_key_the_jobs_of_its_fair_queue_are_counted() {
    let db = TestDb::new().await;
    let fair = async |key: &str| Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).fair(key).await.unwrap().id();
    db.run_while(one_at_a_time(&db), async {
        busy(&db).await;
        for _ in 0..4 {
            fair("a").await;
            fair("b").await;
        }
        let job = fair("b").await;
        eventually("some are queued before it", async || ask(&db, job).await.first().kind == CauseKind::Behind).await;
        let cause = first(&db, job, CauseKind::Behind).await;
        let before = format!("select count(*) from queue.ready where fair_id = queue.fair_id_of('b') and id < {job}");
        assert_eq!((fact(&cause, "ahead"), fact(&cause, "is_fair")), (&db.count(&before).await.into(), &true.into()), "{cause:?}");
        assert!(cause.message.contains("of its fairness key are queued before it"), "{}", cause.message);
        go(&db).await;
        completes(&db, job).await;
    })
    .await;
    db.run_until_idle(super::worker(&db)).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn the_next_one_waits_for_a_slot_of_workers_that_are_busy() {
    let db = TestDb::new().await;
    db.run_while(one_at_a_time(&db), async {
        let running = busy(&db).await;
        // The worker claims one of the two jobs in advance, so the other job stays ready.
        let job = of_priority(&db, 100).await;
        let last = of_priority(&db, 100).await;
        let waiting = async || db.count("select coalesce(min(id), 0) from queue.ready").await;
        eventually("one is not claimed", async || waiting().await > 0).await;
        let next = JobId(waiting().await);
        assert!(next == job || next == last);
        let cause = until_first(&db, next, CauseKind::WorkersBusy).await;
        assert!(cause.facts["held"].as_i64().unwrap() >= 1 && fact(&cause, "held_since").is_string(), "{cause:?}");
        go(&db).await;
        for job in [running, next, last] {
            completes(&db, job).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn without_a_cause_it_reports_that_and_after_a_while_that_this_is_unusual() {
    let db = TestDb::new().await;
    let stands = WorkerProcess::start(WORKER, &db.url, &[("TTL_MS", "30000")]);
    eventually("it lives", async || db.count("select count(*) from queue.worker").await == 1).await;
    stands.signal("STOP");
    let job = ok(&db).await;
    let cause = first(&db, job, CauseKind::Nothing).await;
    assert_eq!(*fact(&cause, "servers"), 1);
    assert!(cause.message.contains("should claim it within about a second") && cause.fix.is_none(), "{}", cause.message);
    let mut other = connect(&db).await;
    let older = "with r as (delete from queue.ready returning *)
        insert into queue.ready select lane, seq - (20000::bigint << 20), id, attempts from r";
    run(&mut other, older).await;
    assert!(first(&db, job, CauseKind::Nothing).await.message.contains("see the logs of its workers"));
    // An old snapshot is reported as an additional cause, although it prevents no job from running.
    run(&mut other, "begin isolation level repeatable read; select").await;
    let causes: Vec<(String, String)> =
        sqlx::query_as(sqlx::AssertSqlSafe(format!("select kind, message from queue.why({job}, span => '0 s')")))
            .fetch_all(&db.pool)
            .await
            .unwrap();
    assert_eq!(causes.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), ["nothing", "old_snapshot"], "{causes:?}");
    assert!(causes[1].1.contains("prevents vacuum from cleaning up"));
    assert_eq!(kinds(&ask(&db, job).await), [CauseKind::Nothing], "it is not old enough");
    run(&mut other, "rollback").await;
    stands.signal("CONT");
    completes(&db, job).await;
    db.finish().await;
}

#[tokio::test]
async fn a_quarantined_job_is_tried_separately_and_shown_as_such() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        let running = busy(&db).await;
        let mut by_hand = connect(&db).await;
        let job: JobId = {
            let mut tx = sqlx::Connection::begin(&mut by_hand).await.unwrap();
            let job = Do { act: Act::Ok(String::new()) }.enqueue(&mut *tx).await.unwrap().id();
            let to_solo = "with taken as (delete from queue.ready where id = $1 returning id)
                insert into queue.ready (lane, seq, id, crashes)
                select queue.ensure_lane('default', 'do', 100::smallint, true), queue.next_id(), id, 2::smallint from taken";
            sqlx::query(to_solo).bind(job).execute(&mut *tx).await.unwrap();
            tx.commit().await.unwrap();
            job
        };
        let cause = first(&db, job, CauseKind::Suspect).await;
        assert_eq!((fact(&cause, "crashes"), fact(&cause, "alone")), (&2.into(), &true.into()));
        assert!(cause.message.contains("alone, once a process is idle"), "{}", cause.message);
        go(&db).await;
        completes(&db, running).await;
        completes(&db, job).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn the_fix_for_a_queue_that_is_behind_lets_the_job_run() {
    let db = TestDb::new().await;
    db.run_while(one_at_a_time(&db), async {
        busy(&db).await;
        for _ in 0..3 {
            ok(&db).await;
        }
        let job = ok(&db).await;
        let cause = until_first(&db, job, CauseKind::Behind).await;
        cure(&db, &cause).await;
        assert!(!kinds(&ask(&db, job).await).contains(&CauseKind::Behind), "it is before them");
        tokio::time::timeout(Duration::from_secs(30), async {
            go(&db).await;
            completes(&db, job).await;
        })
        .await
        .unwrap();
    })
    .await;
    db.run_until_idle(super::worker(&db)).await;
    db.finish().await;
}
