//! Tests producers with open transactions. Uncommitted jobs use up capacity, but other producers do not wait for the transactions to end.
//! A full queue rejects jobs immediately.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use queue_core::{Error, Job as _, Queue, Store, migrate};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{
    Do, Sql as _, TestDb,
    protocol::{beat, claim, register, settle},
};
use tokio::{task::JoinSet, time::timeout};

use super::{is_full, quick, waiting, with_capacity};

/// Uncommitted jobs use up capacity. A producer does not wait if its jobs fit beside the uncommitted jobs, even near the capacity.
#[tokio::test]
async fn producers_do_not_wait_for_each_other_and_their_uncommitted_jobs_count() {
    let db = with_capacity(100).await;
    quick().enqueue(&db.pool).await.unwrap();
    let (mut first, mut second) = (db.pool.begin().await.unwrap(), db.pool.begin().await.unwrap());
    for tx in [&mut first, &mut second] {
        tx.run("set local lock_timeout = '2s'").await;
        quick().enqueue(tx).await.unwrap();
    }
    let mut near = db.pool.begin().await.unwrap();
    near.execute("set local lock_timeout = '2s'").await.unwrap();
    assert_eq!(Do::enqueue_all((0..90).map(|_| quick()), &mut near).await.unwrap(), 90);
    // At this point, 1 job is committed and 92 jobs are uncommitted, so seven more jobs fit. An eighth job is rejected, because the open
    // transactions may commit.
    for tx in [&mut first, &mut second] {
        assert_eq!(Do::enqueue_all((0..3).map(|_| quick()), &mut *tx).await.unwrap(), 3);
    }
    assert!(quick().enqueue(&mut first).unless_at_capacity().await.unwrap().is_some());
    assert!(is_full(&quick().enqueue(&db.pool).await.unwrap_err()));
    assert!(quick().enqueue(&mut second).unless_at_capacity().await.unwrap().is_none());
    near.rollback().await.unwrap();
    first.commit().await.unwrap();
    second.rollback().await.unwrap();
    assert_eq!(Do::enqueue_all((0..94).map(|_| quick()), &db.pool).await.unwrap(), 94, "what is rolled back does not count");
    assert!(is_full(&quick().enqueue(&db.pool).await.unwrap_err()));
    assert_eq!(waiting(&db).await, 100);
    db.finish().await;
}

/// Producers do not wait for each other, so there are no deadlocks. Each transaction enqueues into two queues, in either order. Some
/// transactions enqueue jobs with keys and in bulk, and some skip a full queue.
#[tokio::test]
#[ignore = "deep"]
async fn of_forty_producers_with_mixed_transactions_near_their_capacities_none_is_a_deadlock() {
    let db = with_capacity(100).await;
    Queue::on(&mut db.connect().await).set_capacity("other", Some(100)).await.unwrap();
    let (stop, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut producers = JoinSet::new();
    for n in 0..40 {
        let (mut on, stop, refused) = (db.connect().await, stop.clone(), refused.clone());
        producers.spawn(async move {
            let mut committed = 0;
            for round in 0_usize.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let mut tx = on.begin().await.unwrap();
                let entered = mix(&mut tx, n + round).await;
                match entered {
                    Ok(_) if round % 5 == 4 => tx.rollback().await.unwrap(),
                    Ok(entered) => {
                        tx.commit().await.unwrap();
                        committed += entered;
                    }
                    Err(Error::AtCapacity { .. }) => {
                        refused.fetch_add(1, Ordering::SeqCst);
                        tx.rollback().await.unwrap();
                        // Leaves CPU time for the claims, because claims free capacity.
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
            committed
        });
    }
    let mut taken = 0;
    let mut on = db.connect().await;
    let worker = register(&mut on).await.unwrap();
    while taken < 3000 || refused.load(Ordering::SeqCst) == 0 {
        assert!(beat(&mut on, worker).await.unwrap(), "a round takes no minute");
        let waiting = "select greatest(queue.count_waiting('default', null), queue.count_waiting('other', null))";
        let waiting: i64 = on.one(waiting).await;
        assert!(waiting <= 100, "{waiting} waited at the same time");
        on.run("select queue.unblock(0, 1000)").await;
        if waiting < 90 {
            // Claims nothing until a queue is nearly full. Otherwise the claims could outpace the enqueues, and no enqueue would be
            // rejected.
            continue;
        }
        let lease = claim(&mut on, worker, 10).await.unwrap();
        taken += lease.ids().len();
        settle(&mut on, &lease.all("plain")).await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    let committed: usize = producers.join_all().await.into_iter().sum();
    assert!(committed >= taken, "{committed} entered and {taken} were taken");
    on.run("select pg_stat_force_next_flush()").await;
    assert_eq!(db.count("select deadlocks from pg_stat_database where datname = current_database()").await, 0);
    // Finished and rolled back jobs do not use up capacity. Each queue therefore accepts jobs until 100 jobs are waiting.
    for queue in ["default", "other"] {
        let mut more = 0;
        while quick().enqueue(&mut on).queue(queue).unless_at_capacity().await.unwrap().is_some() {
            more += 1;
            assert!(more <= 100, "{queue}");
        }
        assert_eq!(db.count(&format!("select queue.count_waiting('{queue}', null)")).await, 100, "{queue}");
    }
    db.finish().await;
}

/// Enqueues jobs in one of three patterns, selected by `kind`. Returns the number of enqueued jobs.
async fn mix(tx: &mut PgConnection, kind: usize) -> Result<usize, Error> {
    let (one, other) = if kind.is_multiple_of(2) { ("default", "other") } else { ("other", "default") };
    match kind % 6 {
        0 | 1 => {
            quick().enqueue(&mut *tx).queue(one).await?;
            let beside = quick().enqueue(&mut *tx).queue(other).unless_at_capacity().await?;
            Ok(1 + usize::from(beside.is_some()))
        }
        2 | 3 => {
            quick().enqueue(&mut *tx).queue(one).key(format!("key {}", kind % 7)).await?;
            quick().enqueue(&mut *tx).queue(other).await?;
            Ok(2 + Do::enqueue_all((0..3).map(|_| quick()), &mut *tx).queue(one).await? as usize)
        }
        _ => {
            let mut entered = 0;
            for queue in [one, one, other] {
                entered += usize::from(quick().enqueue(&mut *tx).queue(queue).unless_at_capacity().await?.is_some());
            }
            Ok(entered)
        }
    }
}

/// Returns whether a transaction whose enqueues are all rejected is assigned a transaction id.
async fn writes(db: &TestDb) -> bool {
    let mut tx = db.pool.begin().await.unwrap();
    assert!(quick().enqueue(&mut tx).unless_at_capacity().await.unwrap().is_none());
    assert!(quick().enqueue(&mut tx).unless_at_capacity().unique("new").await.unwrap().is_none());
    assert!(quick().enqueue(&mut tx).unless_at_capacity().key("new").await.unwrap().is_none());
    assert!(quick().enqueue(&mut tx).unless_at_capacity().priority(7).await.unwrap().is_none());
    tx.run("savepoint one").await;
    assert!(is_full(&Do::enqueue_all((0..20).map(|_| quick()), &mut tx).await.unwrap_err()));
    tx.run("rollback to one").await;
    let wrote = "select pg_current_xact_id_if_assigned() is not null";
    let wrote = tx.one(wrote).await;
    tx.rollback().await.unwrap();
    wrote
}

/// An enqueue into a full queue is rejected immediately and writes nothing. This applies whether all jobs of the queue are committed or
/// some belong to an idle transaction.
#[tokio::test]
async fn a_full_queue_refuses_immediately_and_writes_nothing_beside_an_idle_transaction() {
    let db = with_capacity(100).await;
    Do::enqueue_all((0..99).map(|_| quick()), &db.pool).await.unwrap();
    let mut idle = db.pool.begin().await.unwrap();
    quick().enqueue(&mut idle).await.unwrap();
    // A producer that waited for the idle transaction would wait forever, because the transaction ends only after all rejections.
    let refuse = async || {
        for _ in 0..10 {
            let refused = timeout(Duration::from_mins(1), quick().enqueue(&db.pool)).await.expect("it waits for a transaction");
            assert!(is_full(&refused.unwrap_err()));
        }
    };
    refuse().await;
    idle.commit().await.unwrap();
    let mut idle = db.pool.begin().await.unwrap();
    assert!(quick().enqueue(&mut idle).unless_at_capacity().await.unwrap().is_none());
    refuse().await;
    // A transaction without writes has no id. However, the first use of a sequence after a checkpoint is a write, and every finished test
    // on this server triggers a checkpoint. The check is therefore repeated until a transaction has no id.
    let mut tries = 0;
    while writes(&db).await {
        tries += 1;
        assert!(tries < 200, "a refused enqueue writes something");
    }
    idle.rollback().await.unwrap();
    db.finish().await;
}

/// Uncommitted jobs in one store do not use up the capacity of a queue with the same name in another store.
#[tokio::test]
async fn a_transaction_that_enqueues_in_two_stores_is_counted_in_each_by_itself() {
    let db = with_capacity(10).await;
    let (mut on, other) = (db.connect().await, Store::new("other").unwrap());
    migrate(&mut on, other).await.unwrap();
    Queue::on(&mut on).store(other).set_capacity("default", Some(10)).await.unwrap();
    let mut tx = on.begin().await.unwrap();
    let eight = || (0..8).map(|_| quick());
    assert_eq!(Do::enqueue_all(eight(), &mut tx).await.unwrap(), 8);
    assert_eq!(Do::enqueue_all(eight(), &mut tx).store(other).await.unwrap(), 8);
    for store in [Store::default(), other] {
        let more = async |jobs| Do::enqueue_all((0..jobs).map(|_| quick()), &db.pool).store(store).await;
        assert!(matches!(more(3).await, Err(Error::AtCapacity { .. })), "{store:?} has room for two");
        assert_eq!(more(2).await.unwrap(), 2, "{store:?}");
        assert!(
            matches!(Do::enqueue_all(eight(), &mut *tx.begin().await.unwrap()).store(store).await, Err(Error::AtCapacity { .. })),
            "{store:?}"
        );
    }
    tx.commit().await.unwrap();
    for store in ["queue", "other"] {
        assert_eq!(db.count(&format!("select count(*) from {store}.ready")).await, 10);
    }
    db.finish().await;
}

/// All uncommitted jobs of a transaction use up capacity, regardless of their number. A rollback to a savepoint frees the capacity that
/// the transaction has used since the savepoint.
#[tokio::test]
async fn a_transaction_that_enqueues_many_jobs_one_by_one_holds_few_locks_and_is_counted() {
    let db = with_capacity(2000).await;
    let mut tx = db.pool.begin().await.unwrap();
    tx.run("savepoint before").await;
    quick().enqueue(&mut tx).await.unwrap();
    tx.run("rollback to before").await;
    assert_eq!(Do::enqueue_all((0..1000).map(|_| quick()), &db.pool).await.unwrap(), 1000, "none is open");
    for _ in 0..900 {
        quick().enqueue(&mut tx).await.unwrap();
    }
    let locks = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";
    let locks: i64 = tx.one(locks).await;
    assert!(locks < 60, "{locks} locks");
    assert!(Do::enqueue_all((0..101).map(|_| quick()), &db.pool).await.is_err(), "what is open counts");
    tx.commit().await.unwrap();
    assert_eq!(Do::enqueue_all((0..100).map(|_| quick()), &db.pool).await.unwrap(), 100);
    assert!(quick().enqueue(&db.pool).await.is_err());
    db.finish().await;
}
