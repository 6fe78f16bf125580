//! Tests queue capacities. An enqueue is rejected if and only if it would exceed the capacity. Jobs that return to the queue are never
//! rejected.

mod attacks;
mod open;

use std::{
    future::IntoFuture as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use queue_core::{Batch, EnqueueOutcome, Error, Job as _, JobState, Queue};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tests::{
    Do, Sql as _, TestDb,
    protocol::{claim, register, settle},
};
use tokio::task::JoinSet;

fn quick() -> Do {
    Do::ok()
}

/// Creates a database whose default queue has the given capacity.
async fn with_capacity(capacity: u64) -> TestDb {
    let db = TestDb::new().await;
    set(&db, Some(capacity)).await;
    db
}

async fn set(db: &TestDb, capacity: Option<u64>) {
    Queue::on(&mut db.connect().await).set_capacity("default", capacity).await.unwrap();
}

async fn waiting(db: &TestDb) -> i64 {
    db.count("select (select count(*) from queue.ready) + (select count(*) from queue.scheduled)").await
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::AtCapacity { queue, capacity: 100 } if queue == "default")
}

/// Completes all waiting jobs, including scheduled jobs.
async fn drain(db: &TestDb) {
    let mut on = db.connect().await;
    db.run("update queue.scheduled set run_at = now() - interval '1 s'").await;
    sqlx::query(include_str!("../../queue-worker/sql/promote.sql")).bind(100_000_i64).execute(&mut on).await.unwrap();
    let worker = register(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 100_000).await.unwrap();
    settle(&mut on, &lease.all("plain")).await.unwrap();
}

/// Enqueues ready and scheduled jobs, one per transaction, until the queue is full. Rolls back every fourth transaction. Returns the
/// number of committed jobs.
async fn fill(mut on: PgConnection, n: usize) -> u64 {
    let mut entered = 0;
    for round in n.. {
        let mut tx = on.begin().await.unwrap();
        let enqueue = quick().enqueue(&mut tx);
        let enqueue = if round % 3 == 0 { enqueue.after(Duration::from_hours(1)) } else { enqueue };
        if let Err(error) = enqueue.await {
            assert!(is_full(&error), "{error}");
            tx.execute("select 1").await.expect_err("it ends the transaction");
            break;
        }
        for _ in 0..round % 3 {
            tokio::task::yield_now().await;
            tx.run("select 1").await;
        }
        if round % 4 == 0 {
            tx.rollback().await.unwrap();
        } else {
            tx.commit().await.unwrap();
            entered += 1;
        }
    }
    entered
}

#[tokio::test]
#[ignore = "deep"]
async fn of_fifty_producers_exactly_as_many_enqueue_as_the_capacity_allows() {
    let db = with_capacity(100).await;
    for round in 0..3 {
        let mut producers = JoinSet::new();
        for n in 0..50 {
            producers.spawn(fill(db.connect().await, n));
        }
        let entered: u64 = producers.join_all().await.into_iter().sum();
        assert_eq!((entered, waiting(&db).await), (100, 100), "round {round}");
        drain(&db).await;
    }
    db.finish().await;
}

#[tokio::test]
async fn with_consumers_a_queue_never_exceeds_its_capacity_and_continues() {
    let db = with_capacity(20).await;
    let (stopped, entered, most) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let produce = async || {
        let mut on = db.connect().await;
        while entered.load(Ordering::SeqCst) < 600 {
            match quick().enqueue(&mut on).unless_at_capacity().await.unwrap() {
                Some(_) => drop(entered.fetch_add(1, Ordering::SeqCst)),
                None => tokio::task::yield_now().await,
            }
        }
        stopped.store(true, Ordering::SeqCst);
    };
    let consume = async || {
        let mut on = db.connect().await;
        let worker = register(&mut on).await.unwrap();
        while !stopped.load(Ordering::SeqCst) {
            let lease = claim(&mut on, worker, 7).await.unwrap();
            settle(&mut on, &lease.all("plain")).await.unwrap();
        }
    };
    let watch = async || {
        while !stopped.load(Ordering::SeqCst) {
            most.fetch_max(waiting(&db).await.unsigned_abs(), Ordering::SeqCst);
        }
    };
    tokio::join!(produce(), produce(), produce(), produce(), produce(), produce(), consume(), watch(), watch());
    assert!(most.load(Ordering::SeqCst) <= 20, "{most:?} waited at the same time");
    drain(&db).await;
    let completed = db.count("select count(*) from queue.jobs where state = 'completed'").await;
    assert_eq!(completed.unsigned_abs(), entered.load(Ordering::SeqCst));
    db.finish().await;
}

#[tokio::test]
async fn a_refused_try_does_not_change_the_transaction() {
    let db = with_capacity(2).await;
    let mut tx = db.pool.begin().await.unwrap();
    tx.run("insert into effect (job) values (1)").await;
    let mut outcomes = Vec::new();
    for n in 0..4 {
        let handle = quick().enqueue(&mut tx).unless_at_capacity().unique(format!("key {}", n.min(2))).await.unwrap();
        outcomes.push(handle.map(|handle| handle.outcome()));
    }
    assert_eq!(outcomes, [Some(EnqueueOutcome::New), Some(EnqueueOutcome::New), None, None]);
    let kept = quick().enqueue(&mut tx).unique("key 0").unless_at_capacity().await.unwrap().unwrap();
    assert_eq!(kept.outcome(), EnqueueOutcome::Kept, "which needs no capacity");
    tx.commit().await.unwrap();
    assert_eq!(db.count("select count(*) from effect").await, 1);
    assert_eq!(db.count("select count(*) from queue.unique_key").await, 2, "the refused one left no key");
    assert_eq!(waiting(&db).await, 2);
    db.finish().await;
}

#[tokio::test]
async fn a_waiting_producer_enqueues_once_there_is_capacity_or_gets_an_error() {
    let db = with_capacity(1).await;
    let first = quick().enqueue(&db.pool).await.unwrap();
    let error = quick().enqueue(&db.pool).wait_for_capacity(Duration::from_millis(30)).await.unwrap_err();
    assert!(matches!(error, Error::AtCapacity { capacity: 1, .. }), "{error}");
    assert!(error.to_string().contains("the queue `default` is at its capacity of 1 jobs"), "{error}");
    assert_eq!(db.state(first.id()).await, Some(JobState::Ready));
    let (second, ()) = tokio::join!(quick().enqueue(&db.pool).wait_for_capacity(Duration::from_secs(30)).into_future(), drain(&db));
    db.run_while(db.worker(), db.until(second.unwrap().id(), JobState::Completed)).await;
    db.finish().await;
}

#[tokio::test]
async fn no_producer_waits_for_capacity_in_a_transaction_and_any_may_on_a_connection() {
    let db = with_capacity(1).await;
    quick().enqueue(&db.pool).await.unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    let refused = quick().enqueue(&mut tx).wait_for_capacity(Duration::from_secs(30)).await.unwrap_err();
    assert!(matches!(refused, Error::WaitInTransaction), "{refused}");
    let refused = quick().enqueue(&mut tx).wait_for_capacity(Duration::ZERO).unless_at_capacity().await.unwrap_err();
    assert!(matches!(refused, Error::WaitInTransaction), "{refused}");
    tx.commit().await.unwrap();

    let mut on = db.connect().await;
    on.run("begin").await;
    let refused = quick().enqueue(&mut on).wait_for_capacity(Duration::from_secs(30)).await.unwrap_err();
    assert!(matches!(refused, Error::WaitInTransaction), "begun in SQL: {refused}");
    on.run("rollback").await;
    let in_vain = quick().enqueue(&mut on).wait_for_capacity(Duration::from_millis(30)).unless_at_capacity().await.unwrap();
    assert!(in_vain.is_none(), "none, once it has waited");
    let waits = quick().enqueue(&mut on).wait_for_capacity(Duration::from_secs(30));
    let (second, ()) = tokio::join!(waits.into_future(), drain(&db));
    assert_eq!((second.unwrap().outcome(), waiting(&db).await), (EnqueueOutcome::New, 1));
    db.finish().await;
}

#[tokio::test]
async fn a_bulk_enqueue_fits_as_a_whole_or_not_at_all() {
    let db = with_capacity(100).await;
    let mut tx = db.pool.begin().await.unwrap();
    assert!(is_full(&Do::enqueue_all((0..101).map(|_| quick()), &mut tx).await.unwrap_err()));
    tx.rollback().await.unwrap();
    assert!(is_full(&Do::enqueue_all((0..20_000).map(|_| quick()), &db.pool).await.unwrap_err()), "by copy");
    assert_eq!(waiting(&db).await, 0);
    let mut batch = Batch::new();
    for n in 0..200 {
        batch.add(quick()).unwrap().queue(if n % 2 == 0 { "default" } else { "other" });
    }
    batch.enqueue(&db.pool).await.unwrap();
    assert_eq!(waiting(&db).await, 200, "the other queue has no capacity");
    batch.add(quick()).unwrap();
    assert!(is_full(&batch.enqueue(&db.pool).await.unwrap_err()));
    assert_eq!(waiting(&db).await, 200);
    db.finish().await;
}

#[tokio::test]
async fn jobs_that_return_to_a_full_queue_are_not_refused() {
    let db = with_capacity(1).await;
    let mut on = db.connect().await;
    let worker = register(&mut on).await.unwrap();
    for verdict in ["release", "retry", "snooze"] {
        quick().enqueue(&db.pool).await.unwrap();
        let lease = claim(&mut on, worker, 1).await.unwrap();
        quick().enqueue(&db.pool).await.unwrap();
        assert_eq!(settle(&mut on, &lease.all(verdict)).await.unwrap(), []);
        assert_eq!(waiting(&db).await, 2);
        assert!(quick().enqueue(&db.pool).unless_at_capacity().await.unwrap().is_none());
        drain(&db).await;
    }
    db.finish().await;
}

#[tokio::test]
async fn a_capacity_may_be_changed_and_taken_away_and_holds_for_lanes_that_come_later() {
    let db = TestDb::new().await;
    let enqueue = async |priority| quick().enqueue(&db.pool).priority(priority).await.map(|handle| handle.id());
    enqueue(1).await.unwrap();
    set(&db, Some(2)).await;
    enqueue(2).await.unwrap();
    for priority in [1, 2, 3] {
        enqueue(priority).await.unwrap_err();
    }
    let shown = Queue::on(&mut db.connect().await).capacities().await.unwrap();
    assert_eq!((shown.len(), &*shown[0].queue, shown[0].capacity, shown[0].waiting), (1, "default", 2, 2));
    set(&db, Some(3)).await;
    enqueue(3).await.unwrap();
    set(&db, Some(0)).await;
    enqueue(3).await.unwrap_err();
    set(&db, Some(1 << 48)).await;
    enqueue(3).await.unwrap();
    set(&db, None).await;
    for priority in 1..10 {
        enqueue(priority).await.unwrap();
    }
    assert_eq!(db.count("select count(*) from queue.lane where has_capacity").await, 0);
    let error = Queue::on(&mut db.connect().await).set_capacity("no queue", Some(1)).await.unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    for capacity in [(1 << 48) + 1, u64::MAX] {
        let error = Queue::on(&mut db.connect().await).set_capacity("default", Some(capacity)).await.unwrap_err();
        assert!(matches!(error, Error::OutOfRange { what: "the capacity", .. }), "{error}");
    }
    db.finish().await;
}

/// If a queue gets a capacity while the creation of one of its lanes is uncommitted, the capacity must apply to that lane as well.
#[tokio::test]
async fn a_lane_created_while_its_queue_gets_a_capacity_has_it_too() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    quick().enqueue(&mut tx).await.unwrap();
    let ((), ()) = tokio::join!(set(&db, Some(1)), async {
        db.until_waiting(1).await;
        tx.commit().await.unwrap();
    });
    quick().enqueue(&db.pool).await.unwrap_err();
    assert_eq!(waiting(&db).await, 1);
    db.finish().await;
}

#[tokio::test]
async fn under_an_old_snapshot_the_capacity_is_not_exceeded_either() {
    let db = with_capacity(100).await;
    for level in ["repeatable read", "serializable"] {
        let mut old = db.pool.begin().await.unwrap();
        old.execute(AssertSqlSafe(format!("set transaction isolation level {level}"))).await.unwrap();
        old.run("select count(*) from queue.job").await;
        Do::enqueue_all((0..60).map(|_| quick()), &db.pool).await.unwrap();
        Do::enqueue_all((0..60).map(|_| quick()), &mut old).await.unwrap_err();
        old.rollback().await.unwrap();
        assert_eq!(waiting(&db).await, 60);
        let mut fresh = db.pool.begin().await.unwrap();
        fresh.execute(AssertSqlSafe(format!("set transaction isolation level {level}"))).await.unwrap();
        Do::enqueue_all((0..40).map(|_| quick()), &mut fresh).await.unwrap();
        assert!(is_full(&quick().enqueue(&mut fresh).await.unwrap_err()));
        fresh.rollback().await.unwrap();
        drain(&db).await;
    }
    db.finish().await;
}
