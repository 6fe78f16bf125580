//! Tests limits with workers that are killed or frozen, claims that are never confirmed, and a server crash.

use std::time::{Duration, Instant};

use queue_core::{Job as _, JobState, Store, options::Limit};
use sqlx::{PgConnection, Row as _};
use tests::{Act, Batched, Do, Part, Sql as _, TestDb, WorkerProcess, eventually, protocol::register, server::TestServer};

use super::{
    CLAIMS, Limited,
    claim_steps::{claim, connect},
    count_claims, fresh, set, worker,
};

fn start(db: &TestDb) -> WorkerProcess {
    WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[])
}

/// The limit is one concurrent job, in total or per key. The process that runs the job is killed, or frozen and continued later.
#[tokio::test]
#[ignore = "deep"]
async fn permits_of_a_killed_or_stopped_worker_count_until_recovery_and_others_continue() {
    for (signal, keyed) in [("KILL", false), ("STOP", false), ("KILL", true), ("STOP", true)] {
        let db = TestDb::new().await;
        let one = Limit::new().concurrency(1);
        set(&db, "type:do", if keyed { one.keyed() } else { one }).await;
        let process = start(&db);
        let hang = Do { act: Act::First(Box::new(Act::Hang), Box::new(Act::Ok(String::new()))) };
        hang.enqueue(&db.pool).fair("a").await.unwrap();
        db.until_count("select count(*) from effect", 1).await;
        let next = Do::ok().enqueue(&db.pool).fair("a").await.unwrap().id();
        let other = start(&db);
        db.until_count("select count(*) from queue.worker", 2).await;
        process.signal(signal);
        for _ in 0..3 {
            let beside = if keyed {
                Do::ok().enqueue(&db.pool).fair("c").await.unwrap().id()
            } else {
                Batched { part: Part::Complete }.enqueue(&db.pool).await.unwrap().id()
            };
            db.until(beside, JobState::Completed).await;
            assert_eq!(db.state(next).await, Some(JobState::Ready), "{signal}: it holds the limit until its lease ends, keyed: {keyed}");
        }
        db.expire_worker(&process).await;
        db.until(next, JobState::Completed).await;
        assert_eq!(
            db.count("select count(*) from queue.lease l join queue.worker w on w.id = l.worker where w.expires_at < now()").await,
            0
        );
        process.signal("CONT");
        db.until_count("select count(*) from queue.jobs where state <> 'completed'", 0).await;
        assert_eq!(db.count("select count(*) from effect").await, 6, "{signal}: each attempt began once, keyed: {keyed}");
        drop((process, other));
        db.finish().await;
    }
}

#[tokio::test]
async fn a_claim_that_is_never_confirmed_is_released_while_its_worker_lives() {
    let db = fresh().await;
    db.run_while(worker(&db), async {
        let first = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        db.until(first, JobState::Completed).await;
        // Claim the job in another session under the worker's id, as if the reply to the worker's own claim had been lost.
        let id: uuid::Uuid = db.one("select id from queue.worker").await;
        let mut tx = db.pool.begin().await.unwrap();
        let job = Limited { ms: 0 }.enqueue(&mut tx).await.unwrap().id();
        let claim = format!(
            "select c.id from queue.claim_limited(gen_random_uuid(), '{id}', array[queue.hash('type:limited')],
               array[queue.lane_id('default', 'limited', 100, false)], array[0], array[false], array[1], 1, '{{}}', 0, null) c where c.id is not null"
        );
        let taken: Vec<i64> = tx.all(&claim).await;
        assert_eq!(taken.len(), 1);
        tx.commit().await.unwrap();
        db.until(job, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn what_was_confirmed_survives_a_server_crash_and_lost_claims_are_not_confirmed() {
    // The test is repeated, because the server may flush its WAL between the claim and the crash.
    for _ in 0..4 {
        if lose_a_claim().await {
            return;
        }
    }
    panic!("no crash lost a claim that was not confirmed");
}

/// Confirms one claim, leaves another unconfirmed, and crashes the server. Returns whether the second claim was lost.
async fn lose_a_claim() -> bool {
    // The server does not flush the WAL automatically for ten seconds.
    let server = TestServer::start_with(&["wal_writer_delay=10s", "synchronous_commit=on", "fsync=on"]).await.unwrap();
    let db = server.database("limits").await.unwrap();
    let mut on = connect(&server.url("limits")).await;
    let knows = "update queue.worker set paused_seen = 9223372036854775807";
    on.run("select queue.set_limit('type:t', 4); select queue.enqueue('t', '{}') from generate_series(1, 4)").await;
    let one = register(&mut on).await.unwrap();
    on.run(knows).await;
    on.run("set synchronous_commit = on; select pg_logical_emit_message(true, 'x', 'x'); set synchronous_commit = off").await;
    let confirm = async |on: &mut PgConnection, token: uuid::Uuid, ids: &[i64]| {
        let zeros = vec![0_i64; ids.len()];
        let small = vec![1_i16; ids.len()];
        let statement = sqlx::query(Store::default().sql(include_str!("../../../queue-worker/sql/confirm.sql")));
        let statement = statement.bind(token).bind(&zeros).bind(&zeros).bind(ids).bind(&small).bind(&small).bind(1000);
        statement.fetch_all(on).await.unwrap().iter().map(|row| row.get::<i64, _>("id")).collect::<Vec<_>>()
    };
    let kept = claim(&mut on, one, &["type:t"], &["default"], 2, &[]).await.unwrap();
    assert_eq!(confirm(&mut on, kept.token, &kept.ids).await, kept.ids);
    let lost = claim(&mut on, one, &["type:t"], &["default"], 2, &[]).await.unwrap();
    assert_eq!((kept.ids.len(), lost.ids.len()), (2, 2));
    drop(on);
    server.kill().unwrap();
    server.restart().await.unwrap();
    let mut on = connect(&server.url("limits")).await;
    assert_eq!(confirm(&mut on, kept.token, &kept.ids).await, kept.ids, "what began is in its lease");
    let (permits, ready) = (db.count("select sum(n)::bigint from queue.permit"), db.count("select count(*) from queue.ready"));
    let is_lost = (permits.await.unwrap(), ready.await.unwrap()) == (2, 2);
    let begins = confirm(&mut on, lost.token, &lost.ids).await;
    assert_eq!(begins, if is_lost { Vec::new() } else { lost.ids }, "what was lost does not begin");
    is_lost
}

#[tokio::test]
#[ignore = "deep"]
async fn workers_at_a_closed_limiter_query_once_a_second() {
    const WORKERS: usize = 8;
    let db = TestDb::new().await;
    count_claims(&db).await;
    set(&db, "type:do", Limit::new().concurrency(0)).await;
    Do::enqueue_all((0..20).map(|_| Do::ok()), &db.pool).await.unwrap();
    let (stop, _) = tokio::sync::watch::channel(false);
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let mut stopped = stop.subscribe();
            tokio::spawn(db.worker().run(async move {
                let _ = stopped.wait_for(|stop| *stop).await;
            }))
        })
        .collect();
    db.until_count("select count(*) from queue.worker where paused_seen > 0", WORKERS as i64).await;
    eventually("each has queried twice", async || db.count(CLAIMS).await >= 2 * WORKERS as i64).await;
    let (before, began) = (db.count(CLAIMS).await, Instant::now());
    eventually("they ask again and again", async || db.count(CLAIMS).await >= before + 5 * WORKERS as i64).await;
    assert!(began.elapsed() > Duration::from_millis(3500), "each queried five times in {:?}", began.elapsed());
    stop.send_replace(true);
    for worker in workers {
        worker.await.unwrap().unwrap();
    }
    assert_eq!(db.count("select count(*) from effect").await, 0);
    db.finish().await;
}
