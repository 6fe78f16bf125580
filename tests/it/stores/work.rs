//! Tests that one worker process distributes work across stores, and that stores do not interfere with each other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use queue_core::{
    JobState, Store,
    stores::{Member, Roster},
};
use queue_worker::StoresWorker;
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do, TestDb, eventually};

use super::{RunningWorker, enqueue, make, state, until_done, worker_over};

#[tokio::test]
#[ignore = "deep"]
async fn jobs_of_many_stores_run_in_one_worker_and_none_is_left_behind() {
    let db = TestDb::new().await;
    let roster = Roster::default();
    let mut members = vec![Member::new("default", &db.pool, Store::default()).unwrap()];
    for name in ["acme", "globex", "initech", "umbrella"] {
        members.push(make(&db.pool, name).await);
    }
    for member in &members {
        roster.put(member.clone());
    }
    let before = enqueue(&members[1], Act::Ok("before".into())).await;
    let running = RunningWorker::start(worker_over(&roster));
    until_done(&members[1], before).await;
    for round in 0..3 {
        for member in &members {
            let plain = enqueue(member, Act::Ok(round.to_string())).await;
            let retried = enqueue(member, Act::FailUntil(2)).await;
            until_done(member, plain).await;
            until_done(member, retried).await;
        }
        // During this sleep, the worker releases all stores.
        tokio::time::sleep(Duration::from_millis(900)).await;
    }
    let workers = async || {
        let mut all = 0;
        for member in &members {
            let count: i64 = sqlx::query_scalar(member.store().sql("select count(*) from queue.worker")).fetch_one(&db.pool).await.unwrap();
            all += count;
        }
        all
    };
    eventually("stores in which nothing is to do have no worker", async || workers().await == 0).await;
    running.stop().await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_busy_store_takes_what_others_leave_and_starves_none() {
    let db = TestDb::new().await;
    let (busy, small) = (make(&db.pool, "busy").await, make(&db.pool, "small").await);
    let roster = Roster::default();
    for member in [&busy, &small] {
        roster.put(member.clone());
    }
    for _ in 0..200 {
        enqueue(&busy, Act::Sleep(100)).await;
    }
    let running = RunningWorker::start(worker_over(&roster).slots(4));
    eventually("the busy store has all slots", async || {
        let query = busy.store().sql("select count(*) from queue.jobs where state = 'completed'");
        sqlx::query_scalar::<_, i64>(query).fetch_one(&db.pool).await.unwrap() >= 12
    })
    .await;
    let mut quick = Vec::new();
    for _ in 0..3 {
        let job = enqueue(&small, Act::Ok("small".into())).await;
        until_done(&small, job).await;
        quick.push(job.to_string().parse::<i64>().unwrap());
    }
    let left: i64 =
        sqlx::query_scalar(busy.store().sql("select count(*) from queue.jobs where state = 'ready'")).fetch_one(&db.pool).await.unwrap();
    assert!(left > 50, "the busy store has been busy: {left}");
    // The number of concurrently running jobs never exceeds the number of slots. Each of the busy store's jobs holds a slot for longer
    // than the measured interval.
    let most: i64 = sqlx::query_scalar(
        "with held as (select at from public.effect where not job = any ($1))
         select max(n) from (select (select count(*) from held o where o.at <= e.at and o.at > e.at - interval '90 ms') as n from held e) x",
    )
    .bind(quick)
    .fetch_one(&db.pool)
    .await
    .unwrap();
    assert!(most <= 4, "{most} ran concurrently");
    running.stop().await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_store_that_is_locked_dropped_or_not_migrated_stops_alone_and_recovers() {
    let db = TestDb::new().await;
    let (well, locked, dropped) = (make(&db.pool, "well").await, make(&db.pool, "locked").await, make(&db.pool, "dropped").await);
    let unmade = Member::new("unmade", &db.pool, Store::new("unmade").unwrap()).unwrap();
    let roster = Roster::default();
    for member in [&well, &locked, &dropped, &unmade] {
        roster.put(member.clone());
    }
    let running = RunningWorker::start(worker_over(&roster));
    for member in [&well, &locked, &dropped] {
        let job = enqueue(member, Act::Ok("first".into())).await;
        until_done(member, job).await;
    }
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    sqlx::raw_sql("lock table locked.ready, locked.worker, locked.lease in access exclusive mode").execute(&mut *tx).await.unwrap();
    sqlx::raw_sql("drop schema dropped cascade").execute(&db.pool).await.unwrap();
    for _ in 0..10 {
        let job = enqueue(&well, Act::Ok("beside".into())).await;
        until_done(&well, job).await;
    }
    tx.rollback().await.unwrap();
    for member in [&locked, &make(&db.pool, "dropped").await, &make(&db.pool, "unmade").await] {
        let job = enqueue(member, Act::Ok("again".into())).await;
        until_done(member, job).await;
    }
    running.stop().await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_store_whose_worker_cannot_be_created_stops_alone() {
    let db = TestDb::new().await;
    let roster = Roster::default();
    let (well, bad) = (make(&db.pool, "well").await, make(&db.pool, "bad").await);
    for member in [&well, &bad] {
        roster.put(member.clone());
    }
    let is_bad = Arc::new(AtomicBool::new(false));
    let refused = Arc::new(AtomicU64::new(0));
    let (fails, counted) = (Arc::clone(&is_bad), Arc::clone(&refused));
    let worker = StoresWorker::new(&roster, move |member, worker| {
        if member.name() == "bad" && fails.load(SeqCst) {
            counted.fetch_add(1, SeqCst);
            panic!("as told");
        }
        worker.register::<Do>().lease_ttl(Duration::from_secs(5))
    });
    let running = RunningWorker::start(worker.linger(Duration::from_millis(100)));
    let first = enqueue(&bad, Act::Ok("first".into())).await;
    until_done(&bad, first).await;
    eventually("it has no worker", async || db.count("select count(*) from bad.worker").await == 0).await;
    is_bad.store(true, SeqCst);
    // A worker that was created before the fault may not have registered yet, and may complete a job. The test therefore enqueues jobs
    // until one stays ready.
    let mut waits = first;
    eventually("no worker is made for it", async || {
        waits = enqueue(&bad, Act::Ok("waits".into())).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        refused.load(SeqCst) > 0 && state(&bad, waits).await == Some(JobState::Ready)
    })
    .await;
    for _ in 0..5 {
        let job = enqueue(&well, Act::Ok("beside".into())).await;
        until_done(&well, job).await;
    }
    assert_eq!(state(&bad, waits).await, Some(JobState::Ready));
    is_bad.store(false, SeqCst);
    until_done(&bad, waits).await;
    running.stop().await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_store_is_served_once_added_and_released_after_its_running_jobs_once_removed() {
    let db = TestDb::new().await;
    let roster = Roster::default();
    let running = RunningWorker::start(worker_over(&roster));
    let late = make(&db.pool, "late").await;
    roster.put(late.clone());
    let job = enqueue(&late, Act::Ok("here".into())).await;
    until_done(&late, job).await;
    let slow = enqueue(&late, Act::Sleep(3000)).await;
    eventually("it has begun", async || db.count(&format!("select count(*) from effect where job = {slow}")).await == 1).await;
    assert!(roster.remove("late") && !roster.remove("late"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let never = enqueue(&late, Act::Ok("never".into())).await;
    // After a store is removed, its running jobs can finish. The grace period of two seconds applies only when the process shuts down.
    until_done(&late, slow).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(state(&late, never).await, Some(JobState::Ready));
    let workers: i64 = sqlx::query_scalar(late.store().sql("select count(*) from queue.worker")).fetch_one(&db.pool).await.unwrap();
    assert_eq!(workers, 0);
    roster.put(late.clone());
    until_done(&late, never).await;
    running.stop().await;
    let left = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'queue-worker%'";
    // The server notices a dropped connection with a delay.
    eventually("it leaves no connection", async || db.count(left).await == 0).await;
    db.finish().await;
}
