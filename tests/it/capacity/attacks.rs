//! Tests edge cases of queue capacities: queues with different capacities, changes of a capacity, old snapshots, and void tickets. A
//! ticket permits a producer to enqueue one job without counting the waiting jobs.

use std::future::IntoFuture as _;

use queue_core::{Error, Job as _, Queue};
use sqlx::{Connection as _, Executor as _, Postgres, Transaction};
use tests::{
    Do, Sql as _, TestDb,
    protocol::{claim, register, settle},
};

use super::{is_full, quick, set, waiting, with_capacity};

async fn set_other(db: &TestDb, capacity: Option<u64>) {
    Queue::on(&mut db.connect().await).set_capacity("other", capacity).await.unwrap();
}

/// Tries to enqueue ten jobs, one after another. Returns the number of accepted jobs.
async fn count_accepted(db: &TestDb, queue: &str) -> usize {
    let mut taken = 0;
    for _ in 0..10 {
        match quick().enqueue(&db.pool).queue(queue).await {
            Ok(_) => taken += 1,
            Err(Error::AtCapacity { queue: full, .. }) => assert_eq!(full, queue),
            Err(error) => panic!("{error}"),
        }
    }
    taken
}

/// Begins a repeatable read transaction and takes its snapshot, so that the transaction does not see later commits.
async fn old_snapshot(db: &TestDb) -> Transaction<'static, Postgres> {
    let mut old = db.pool.begin().await.unwrap();
    old.run("set transaction isolation level repeatable read").await;
    old.run("select count(*) from queue.job").await;
    old
}

async fn wait_until_retrying(db: &TestDb) {
    let sleeps = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    db.until_count(sleeps, 1).await;
}

#[tokio::test]
async fn the_capacity_of_one_queue_is_not_that_of_another() {
    let db = with_capacity(100).await;
    set_other(&db, Some(3)).await;
    // The tickets of the queue `default` do not permit enqueues into the queue `other`.
    assert_eq!((count_accepted(&db, "default").await, count_accepted(&db, "other").await), (10, 3));
    set(&db, None).await;
    assert_eq!((count_accepted(&db, "default").await, count_accepted(&db, "other").await), (10, 0));
    set(&db, Some(21)).await;
    assert_eq!((count_accepted(&db, "default").await, count_accepted(&db, "other").await, count_accepted(&db, "third").await), (1, 0, 10));
    set(&db, Some(22)).await;
    set_other(&db, Some(4)).await;
    // Uncommitted jobs in one queue do not use up the capacity of the other queue.
    let mut near = db.pool.begin().await.unwrap();
    quick().enqueue(&mut near).await.unwrap();
    let mut beside = db.pool.begin().await.unwrap();
    beside.execute("set local lock_timeout = '2s'").await.unwrap();
    quick().enqueue(&mut beside).queue("other").await.unwrap();
    near.commit().await.unwrap();
    beside.commit().await.unwrap();
    assert_eq!((count_accepted(&db, "default").await, count_accepted(&db, "other").await), (0, 0));
    db.finish().await;
}

#[tokio::test]
async fn ready_scheduled_and_blocked_jobs_count_once_each() {
    let db = with_capacity(5).await;
    quick().enqueue(&db.pool).await.unwrap();
    quick().enqueue(&db.pool).after(std::time::Duration::from_hours(1)).await.unwrap();
    for _ in 0..2 {
        quick().enqueue(&db.pool).key("key").await.unwrap();
    }
    assert_eq!(db.count("select count(*) from queue.blocked").await, 1);
    // Duplicate the lane row, as if two producers had created the lane at the same time.
    db.run("insert into queue.lane select * from queue.lane").await;
    assert_eq!(db.count("select queue.count_waiting('default', null)").await, 4);
    assert_eq!(db.count("select queue.count_waiting('default', 3)").await, 3, "counted no further");
    assert_eq!(db.count("select queue.count_waiting('other', null)").await, 0);
    // `depth` returns the number of counted jobs, and whether the queue contains further jobs.
    for (arguments, seen) in
        [("'default'", "4 f"), ("'default', 4", "4 f"), ("'default', 3", "3 t"), ("'default', null", "4 f"), ("'other'", "0 f")]
    {
        let depth = format!("select count(*) from queue.depth({arguments}) d where format('%s %s', d.waiting, d.partial) = '{seen}'");
        assert_eq!(db.count(&depth).await, 1, "depth({arguments}) is {seen}");
    }
    let all = Queue::new(&db.pool).capacities_exactly().await.unwrap();
    assert_eq!((all[0].waiting, all[0].partial), (4, false));
    for (most, seen) in [("3", "3 t"), ("4", "4 f")] {
        let shown = format!("select count(*) from queue.capacities({most}) c where format('%s %s', c.waiting, c.partial) = '{seen}'");
        assert_eq!(db.count(&shown).await, 1, "capacities({most}) shows {seen}");
    }
    // `depths` counts at most ten times its second argument in total. With the argument 4, the count of twenty queues therefore stops at
    // two jobs per queue.
    let many = "select count(*) from queue.depths(array_append(array_fill('other'::text, array[19]), 'default'), 4) d
      where d.queue = 'default' and d.waiting = 2 and d.partial or d.queue = 'other' and d.waiting = 0 and not d.partial";
    assert_eq!(db.count(many).await, 2);
    let all = "select count(*) from queue.depths(array_append(array_fill('other'::text, array[19]), 'default'), null) d
      where d.queue = 'default' and d.waiting = 4 and not d.partial";
    assert_eq!(db.count(all).await, 1, "all of many queues, on request");
    assert_eq!(count_accepted(&db, "default").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn tickets_of_a_capacity_that_was_lowered_are_void() {
    let db = with_capacity(100).await;
    quick().enqueue(&db.pool).await.unwrap();
    set(&db, Some(5)).await;
    assert_eq!(count_accepted(&db, "default").await, 4);
    db.finish().await;
}

#[tokio::test]
async fn a_ticket_is_good_for_one_job() {
    let db = with_capacity(100).await;
    quick().enqueue(&db.pool).await.unwrap();
    let many = async || Do::enqueue_all((0..70).map(|_| quick()), &db.pool).await;
    assert_eq!(many().await.unwrap(), 70);
    assert!(is_full(&many().await.unwrap_err()));
    assert_eq!(waiting(&db).await, 71);
    db.finish().await;
}

#[tokio::test]
async fn tickets_that_only_an_old_snapshot_shows_are_void() {
    let db = with_capacity(100).await;
    quick().enqueue(&db.pool).await.unwrap();
    let mut old = old_snapshot(&db).await;
    Do::enqueue_all((0..95).map(|_| quick()), &db.pool).await.unwrap();
    if Do::enqueue_all((0..10).map(|_| quick()), &mut old).await.is_ok() {
        let _ = old.commit().await;
    } else {
        old.rollback().await.unwrap();
    }
    assert_eq!(waiting(&db).await, 96);
    db.finish().await;
}

/// Uncommitted jobs use up capacity even while their transaction waits for another transaction.
#[tokio::test]
async fn uncommitted_jobs_count_while_their_transaction_waits_for_another() {
    let db = with_capacity(100).await;
    let mut ahead = db.pool.begin().await.unwrap();
    quick().enqueue(&mut ahead).queue("other").key("key").await.unwrap();
    let mut behind = db.pool.begin().await.unwrap();
    Do::enqueue_all((0..90).map(|_| quick()), &mut behind).await.unwrap();
    let waits = tokio::spawn(async move {
        quick().enqueue(&mut behind).queue("other").key("key").await.unwrap();
        behind
    });
    db.until_waiting(1).await;
    assert_eq!(count_accepted(&db, "default").await, 10);
    assert!(is_full(&quick().enqueue(&db.pool).await.unwrap_err()));
    ahead.commit().await.unwrap();
    waits.await.unwrap().commit().await.unwrap();
    db.finish().await;
}

/// While uncommitted jobs use up the capacity, an enqueue is rejected unless it waits for capacity. The waiting enqueue succeeds after
/// the transaction is rolled back. An enqueue after a change of the capacity uses the new capacity.
#[tokio::test]
async fn a_producer_that_waited_for_another_transaction_uses_its_outcome() {
    let db = with_capacity(100).await;
    quick().enqueue(&db.pool).await.unwrap();
    for (rolls_back, capacity, enters) in [(false, 100, false), (true, 100, true), (true, 50, false)] {
        set(&db, Some(100)).await;
        let mut counting = db.pool.begin().await.unwrap();
        let before = waiting(&db).await;
        Do::enqueue_all((0..100 - before).map(|_| quick()), &mut counting).await.unwrap();
        let many = async || Do::enqueue_all((0..60).map(|_| quick()), &db.pool).await;
        assert!(is_full(&many().await.unwrap_err()), "it is not known yet whether there will be capacity");
        if rolls_back {
            let patient = quick().enqueue(&db.pool).wait_for_capacity(std::time::Duration::from_secs(30)).into_future();
            let (late, ()) = tokio::join!(patient, async {
                wait_until_retrying(&db).await;
                counting.rollback().await.unwrap();
            });
            late.unwrap();
            set(&db, Some(capacity)).await;
            assert_eq!(many().await.is_ok(), enters);
        } else {
            counting.commit().await.unwrap();
            assert!(is_full(&many().await.unwrap_err()));
            assert_eq!(waiting(&db).await, 100);
            db.run("select queue.cancel(id) from (select id from queue.ready limit 99) r").await;
        }
    }
    db.finish().await;
}

/// While another session has locked the queue's counter row, a producer cannot store its count and draws numbers from `beside_seq` instead.
/// A transaction with an older snapshot must count the drawn numbers as jobs.
#[tokio::test]
async fn jobs_counted_beside_a_locked_row_count_under_an_old_snapshot() {
    let db = with_capacity(100).await;
    Do::enqueue_all((0..85).map(|_| quick()), &db.pool).await.unwrap();
    let mut holds = db.pool.begin().await.unwrap();
    quick().enqueue(&mut holds).await.unwrap();
    let mut old = old_snapshot(&db).await;
    Do::enqueue_all((0..10).map(|_| quick()), &db.pool).await.unwrap();
    holds.rollback().await.unwrap();
    Do::enqueue_all((0..10).map(|_| quick()), &mut old).await.unwrap_err();
    old.rollback().await.unwrap();
    assert_eq!(waiting(&db).await, 95);
    db.finish().await;
}

#[tokio::test]
async fn tickets_newer_than_an_old_snapshot_count_and_other_queues_do_not() {
    let db = with_capacity(100).await;
    set_other(&db, Some(10_000)).await;
    Do::enqueue_all((0..50).map(|_| quick()), &db.pool).await.unwrap();
    quick().enqueue(&db.pool).queue("other").await.unwrap();
    let mut before = old_snapshot(&db).await;
    for _ in 0..10 {
        quick().enqueue(&db.pool).await.unwrap();
    }
    let error = Do::enqueue_all((0..45).map(|_| quick()), &mut before).await.unwrap_err();
    assert!(is_full(&error), "{error}");
    before.rollback().await.unwrap();
    assert_eq!(waiting(&db).await, 61);
    let mut before = old_snapshot(&db).await;
    Do::enqueue_all((0..200).map(|_| quick()), &db.pool).queue("other").await.unwrap();
    Do::enqueue_all((0..15).map(|_| quick()), &mut before).await.unwrap();
    before.commit().await.unwrap();
    assert_eq!(db.count("select queue.count_waiting('default', null)").await, 75);
    db.finish().await;
}

#[tokio::test]
async fn a_lane_created_under_an_old_snapshot_has_the_capacity_too() {
    let db = TestDb::new().await;
    quick().enqueue(&db.pool).await.unwrap();
    let mut old = old_snapshot(&db).await;
    set(&db, Some(2)).await;
    quick().enqueue(&mut old).priority(5).await.unwrap();
    old.commit().await.unwrap();
    quick().enqueue(&db.pool).priority(5).await.unwrap_err();
    db.finish().await;
}

#[tokio::test]
async fn while_a_capacity_is_being_set_recoveries_continue_and_returning_jobs_need_no_ticket() {
    let db = with_capacity(1).await;
    let (mut on, mut operator) = (db.connect().await, db.connect().await);
    quick().enqueue(&db.pool).await.unwrap();
    let worker = register(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 1).await.unwrap();
    quick().enqueue(&db.pool).await.unwrap();
    assert_eq!(settle(&mut on, &lease.all("release")).await.unwrap(), []);
    on.execute("select queue.take_capacity('default', 0)").await.expect("no job needs no capacity, even above it");
    let mut changing = operator.begin().await.unwrap();
    changing.execute("select queue.set_capacity('default', 2)").await.unwrap();
    on.run("set lock_timeout = '2s'").await;
    on.run("select queue.ensure_lane('default', 'do', 7::smallint, true)").await;
    changing.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_capacity_does_not_wait_forever_for_a_lane_that_is_being_created() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    quick().enqueue(&mut tx).await.unwrap();
    let mut operator = db.connect().await;
    let queue = Queue::on(&mut operator);
    let error = queue.set_capacity("default", Some(1));
    let error = tokio::time::timeout(std::time::Duration::from_secs(30), error).await.expect("it gives up").unwrap_err();
    assert!(error.to_string().contains("lock timeout"), "{error}");
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_producer_that_creates_a_lane_does_not_deadlock_with_a_new_capacity() {
    let db = with_capacity(100).await;
    quick().enqueue(&db.pool).await.unwrap();
    // Setting the capacity resets the counter. The next transaction therefore counts the jobs and locks the counter row until its end.
    set(&db, Some(100)).await;
    let mut producer = db.pool.begin().await.unwrap();
    quick().enqueue(&mut producer).await.unwrap();
    let mut operator = db.connect().await;
    let changing = tokio::spawn(async move { Queue::on(&mut operator).set_capacity("default", Some(50)).await });
    db.until_waiting(1).await;
    quick().enqueue(&mut producer).priority(7).await.expect("a new lane is met");
    producer.commit().await.unwrap();
    changing.await.unwrap().unwrap();
    assert_eq!(db.count("select count(*) from queue.lane where not has_capacity").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_capacity_out_of_range_is_refused() {
    let db = TestDb::new().await;
    let set = async |capacity: i64| sqlx::query("select queue.set_capacity('default', $1)").bind(capacity).execute(&db.pool).await;
    for capacity in [i64::MAX, (1 << 48) + 1, -1] {
        set(capacity).await.unwrap_err();
    }
    set(1 << 48).await.unwrap();
    assert_eq!(count_accepted(&db, "default").await, 10);
    db.finish().await;
}
