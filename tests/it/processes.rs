//! Tests worker processes that are killed, stopped and duplicated.

use std::time::{Duration, Instant};

use queue_core::{Job as _, JobId, JobState};
use tests::{Act, Do, TestDb, Within, WorkerProcess, effects, eventually, within};
use uuid::Uuid;

fn start(db: &TestDb, settings: &[(&str, &str)]) -> WorkerProcess {
    WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, settings)
}

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

fn first(act: Act, later: Act) -> Act {
    Act::First(Box::new(act), Box::new(later))
}

fn ok() -> Act {
    Act::Ok(String::new())
}

/// Kills a worker once the query `reached` returns a positive number, and lets another worker complete the jobs. Jobs in the killed
/// worker's leases are recovered and charged a crash. Other jobs are unaffected.
async fn killed_once(reached: &str, jobs: Vec<Act>) {
    let db = TestDb::new().await;
    let all = i64::try_from(jobs.len()).unwrap();
    for act in jobs {
        enqueue(&db, act).await;
    }
    let process = start(&db, &[]);
    within(Duration::from_secs(20), reached, async || db.count(reached).await > 0).await;
    db.kill(process).await;
    eventually("its statements have ended with it", async || {
        db.count("select count(*) from pg_stat_activity where datname = current_database() and application_name like 'queue-worker%'").await
            == 0
    })
    .await;
    let held: Vec<JobId> = sqlx::query_scalar("select unnest(ids) from queue.lease").fetch_all(&db.pool).await.unwrap();
    assert!(!held.is_empty(), "the kill came when nothing was held");

    let _second = start(&db, &[]);
    within(Duration::from_secs(30), "all jobs are completed", async || db.count("select count(*) from queue.done").await == all).await;
    let charged: Vec<JobId> =
        sqlx::query_scalar("select id from queue.failure where error = 'the process ended during the attempt' order by id")
            .fetch_all(&db.pool)
            .await
            .unwrap();
    let mut expected = held.clone();
    expected.sort_unstable();
    assert_eq!(charged, expected, "exactly what it held is charged a crash");
    for (id, attempts) in sqlx::query_as::<_, (JobId, i16)>("select id, attempts from queue.done").fetch_all(&db.pool).await.unwrap() {
        let crashes = i64::from(held.contains(&id));
        assert_eq!(i64::from(attempts), 1 + crashes, "attempts of {id}");
        let effects = effects(&db.pool, id).await.unwrap();
        assert!((1..=1 + crashes).contains(&effects), "job {id} ran {effects} times");
    }
    db.finish().await;
}

#[tokio::test]
async fn f32_a_worker_killed_as_soon_as_it_has_claimed_loses_nothing() {
    killed_once("select count(*) from queue.lease", vec![first(Act::Sleep(200), ok()); 30]).await;
}

#[tokio::test]
async fn f32_a_worker_killed_with_handlers_running_loses_nothing() {
    killed_once("select (count(*) >= 10)::int::bigint from effect", vec![first(Act::Hang, ok()); 10]).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f32_a_worker_killed_while_it_settles_loses_nothing() {
    // The first jobs run for the whole test, so that the worker always has leased jobs when it is killed.
    let jobs = [vec![first(Act::Sleep(20_000), ok()); 5], vec![first(Act::Sleep(1), ok()); 995]].concat();
    killed_once("select (count(*) >= 50)::int::bigint from queue.done", jobs).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f32_a_worker_killed_with_prefetched_jobs_waiting_loses_nothing() {
    // The fast jobs make the worker prefetch. The slow jobs then keep the prefetched jobs waiting. The worker runs ten jobs at a time.
    let jobs = [vec![first(ok(), ok()); 1000], vec![first(Act::Sleep(1500), ok()); 60]].concat();
    killed_once(
        "select (coalesce(sum(cardinality(ids)), 0) > 15 and (select count(*) from queue.done) > 900)::int::bigint from queue.lease",
        jobs,
    )
    .await;
}

/// Returns the ids under which a process is currently registered as a worker.
async fn identities(db: &TestDb, process: &WorkerProcess) -> Vec<Uuid> {
    sqlx::query_scalar("select id from queue.worker where pid = $1 and expires_at > now()")
        .bind(process.pid().cast_signed())
        .fetch_all(&db.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn f29_f33_a_worker_stopped_for_longer_than_its_lease_changes_nothing_and_goes_on_working() {
    let db = TestDb::new().await;
    let zombie = start(&db, &[("TTL_MS", "1000")]);
    eventually("it is announced", async || identities(&db, &zombie).await.len() == 1).await;
    let before = identities(&db, &zombie).await;
    let mut jobs = Vec::new();
    for act in [Act::Ok("zombie".into()), Act::Fail("zombie".into()), Act::Snooze(60_000, 5), Act::Terminal("zombie".into())] {
        let second = Act::Slowly(400, Box::new(Act::Ok("second".into())));
        jobs.push(enqueue(&db, first(Act::Slowly(1500, Box::new(act)), second)).await);
    }
    eventually("all have begun", async || db.count("select count(*) from effect").await == 4).await;
    zombie.signal("STOP");
    let mut second = start(&db, &[("TTL_MS", "1000")]);
    within(Duration::from_secs(20), "the second holder has begun", async || db.count("select count(*) from effect").await > 4).await;
    // By now, the stopped worker's timers have expired, and the second worker has started at least one of the jobs.
    zombie.signal("CONT");
    for job in &jobs {
        db.until(*job, JobState::Completed).await;
        assert_eq!(effects(&db.pool, *job).await.unwrap(), 2);
    }
    let outcomes: Vec<(String, i16)> =
        sqlx::query_as("select output #>> '{}', attempts from queue.done").fetch_all(&db.pool).await.unwrap();
    assert_eq!(outcomes, vec![("second".to_owned(), 2); 4]);
    assert_eq!(db.count("select count(*) from queue.failure").await, 4, "one crash each");
    assert_eq!(db.count("select count(*) from queue.failure where error = 'the process ended during the attempt'").await, 4);

    eventually("it has a new identity", async || identities(&db, &zombie).await.iter().any(|id| !before.contains(id))).await;
    second.signal("TERM");
    assert_eq!(second.wait(), Some(0));
    let probe = enqueue(&db, ok()).await;
    db.until(probe, JobState::Completed).await;
    let by: i32 = sqlx::query_scalar("select pid from effect where job = $1").bind(probe).fetch_one(&db.pool).await.unwrap();
    assert_eq!(by, zombie.pid().cast_signed());
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn ten_thousand_jobs_of_two_processes_run_exactly_once() {
    const JOBS: i64 = 10_000;
    let db = TestDb::new().await;
    let _workers = [start(&db, &[("TTL_MS", "30000")]), start(&db, &[("TTL_MS", "30000")])];
    eventually("both are announced", async || db.count("select count(*) from queue.worker").await == 2).await;
    sqlx::query("select queue.enqueue('do', '{\"act\":{\"Ok\":\"\"}}') from generate_series(1, $1)")
        .bind(JOBS)
        .execute(&db.pool)
        .await
        .unwrap();
    within(Duration::from_mins(2), "all are completed", async || db.count("select count(*) from queue.done").await == JOBS).await;
    assert_eq!(db.count("select count(*) from effect").await, JOBS);
    assert_eq!(db.count("select count(distinct job) from effect").await, JOBS);
    assert_eq!(db.count("select count(distinct pid) from effect").await, 2, "both had a share");
    assert_eq!(db.count("select count(*) from queue.done where attempts = 1").await, JOBS);
    assert_eq!(db.count("select count(*) from queue.lease").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn f55_two_workers_with_the_same_name_host_and_pid_differ() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Sleep(600)).await;
    db.run_while(db.worker(), async {
        db.run_while(db.worker(), async {
            db.until(job, JobState::Running).await;
            eventually("both are announced", async || db.count("select count(*) from queue.worker").await == 2).await;
            assert_eq!(db.count("select count(*) from (select distinct name, host, pid from queue.worker) w").await, 1);
            db.until(job, JobState::Completed).await;
        })
        .await;
        assert_eq!(db.count("select count(*) from queue.worker").await, 1, "the end of one takes only its own row away");
        let other = enqueue(&db, ok()).await;
        db.until(other, JobState::Completed).await;
    })
    .await;
    assert_eq!(effects(&db.pool, job).await.unwrap(), 1);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f50_jobs_that_end_the_process_are_dead_after_three_crashes_and_no_other_is() {
    let db = TestDb::new().await;
    let mut poison = Vec::new();
    for kind in [Act::Abort, Act::Overflow, Act::Exit(0), Act::OutOfMemory, Act::PanicTwice] {
        for _ in 0..50 {
            enqueue(&db, Act::Sleep(5)).await;
        }
        poison.push(enqueue(&db, kind).await);
        for _ in 0..50 {
            enqueue(&db, Act::Sleep(5)).await;
        }
    }
    poison.push(Within { how: "abort".to_owned() }.enqueue(&db.pool).max_attempts(20).await.unwrap().id());
    // The lease is longer than any freeze of the machine, because an expired lease charges each running job a crash. The test expires the
    // lease itself.
    let settings = [("TTL_MS", "60000"), ("CONCURRENCY", "20")];
    let (mut process, mut crashes, began) = (start(&db, &settings), 0, Instant::now());
    within(Duration::from_mins(3), "all are completed or dead", async || {
        if process.has_ended() {
            crashes += 1;
            sqlx::query("update queue.worker set expires_at = now() - interval '1 second'").execute(&db.pool).await.unwrap();
            process = start(&db, &settings);
        }
        db.count("select (select count(*) from queue.done) + (select count(*) from queue.dead)").await == 506
    })
    .await;
    let dead: Vec<(JobId, i16)> = sqlx::query_as("select id, crashes from queue.dead order by id").fetch_all(&db.pool).await.unwrap();
    assert_eq!(dead, poison.iter().map(|id| (*id, 3)).collect::<Vec<_>>());
    assert_eq!(db.count("select count(*) from queue.done").await, 500);
    assert!((3..=18).contains(&crashes), "{crashes} crashes of the process for three of each job");
    let most: i64 = db
        .count("select coalesce(max(n), 0) from (select count(*) as n from queue.failure f join queue.done d using (id) group by id) f")
        .await;
    assert!(most <= 2, "jobs that only ran beside it, once and perhaps once more in quarantine, succeed alone: {most}");
    println!("500 completed and 6 dead after {crashes} crashes in {:.1?}; at most {most} crashes beside them", began.elapsed());
    db.finish().await;
}
