//! Tests unique jobs with many concurrent producers, claims and verdicts.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use queue_core::{EnqueueOutcome, Job as _, JobHandle, JobId, OnConflict, options::While};
use sqlx::{Connection as _, PgConnection, Row as _};
use tests::{
    Do, Sql as _, TestDb,
    protocol::{ClaimedJob, JobVerdict, Lease, claim, register, settle},
};
use tokio::task::JoinSet;

use super::{end, jobs, say};

const PRODUCERS: usize = 50;

/// Enqueues a job in a transaction. Returns the connection, and the handle if the transaction committed.
async fn produce(
    mut on: PgConnection,
    n: usize,
    key: String,
    held: While,
    on_conflict: OnConflict,
) -> (PgConnection, Option<JobHandle<Do>>) {
    let mut tx = on.begin().await.unwrap();
    let handle = say(&n.to_string()).enqueue(&mut tx).unique(key).unique_while(held).on_conflict(on_conflict).await.unwrap();
    // Delays the end of the transaction, so that other producers wait for commits and rollbacks.
    for _ in 0..n % 5 {
        tx.run("select 1").await;
        tokio::task::yield_now().await;
    }
    if n.is_multiple_of(3) {
        tx.rollback().await.unwrap();
        return (on, None);
    }
    tx.commit().await.unwrap();
    (on, Some(handle))
}

#[tokio::test]
#[ignore = "deep"]
async fn of_fifty_producers_with_one_key_exactly_one_enqueues_in_every_mode() {
    let db = TestDb::new().await;
    let mut expected = 0;
    let mut connections = Vec::new();
    for _ in 0..PRODUCERS {
        connections.push(db.connect().await);
    }
    for held in [While::Live, While::Queued, While::Kept, While::For(Duration::from_hours(1))] {
        for (on_conflict, other) in [
            (OnConflict::Keep, EnqueueOutcome::Kept),
            (OnConflict::Replace, EnqueueOutcome::Replaced),
            (OnConflict::Debounce, EnqueueOutcome::Debounced),
        ] {
            let key = format!("{held:?} {on_conflict:?}");
            let mut producers = JoinSet::new();
            for (n, on) in connections.drain(..).enumerate() {
                producers.spawn(produce(on, n, key.clone(), held, on_conflict));
            }
            let (back, handles): (Vec<_>, Vec<_>) = producers.join_all().await.into_iter().unzip();
            connections = back;
            let handles: Vec<JobHandle<Do>> = handles.into_iter().flatten().collect();
            assert_eq!(handles.len(), PRODUCERS - PRODUCERS.div_ceil(3));
            assert!(handles.iter().all(|handle| handle.id() == handles[0].id()), "{key}: all got the same job");
            let count = |outcome| handles.iter().filter(|handle| handle.outcome() == outcome).count();
            assert_eq!((count(EnqueueOutcome::New), count(other)), (1, handles.len() - 1), "{key}");
            expected += 1;
            assert_eq!(jobs(&db).await, expected, "{key}");
        }
    }
    db.finish().await;
}

/// The jobs of a key are enqueued, claimed, and released or retried until they finish. Meanwhile, housekeeping deletes keys.
#[tokio::test]
async fn a_live_key_never_has_two_live_jobs() {
    let db = TestDb::new().await;
    let stopped = AtomicBool::new(false);
    let (producers, workers) = (producers(&db, 10, 30), workers(&db, &stopped));
    tokio::join!(
        async {
            producers.await;
            stopped.store(true, Ordering::SeqCst);
        },
        workers,
        forget(&db, &stopped)
    );
    db.check_invariant().await;
    // Counts jobs that were created before the previous job of their key had finished. A job id contains the time at which the key was
    // found free, rounded to a millisecond. The finish time of a job is the time of its verdict.
    let two = "select count(*) from (
        select id, lag(coalesce(finished_at, 'infinity')) over (partition by payload -> 'act' ->> 'Ok' order by id) as before from queue.jobs
      ) j where before > queue.enqueued_at(id) + interval '1 ms'";
    assert_eq!(db.count(two).await, 0);
    assert!(jobs(&db).await > 20, "some finished in time: {}", jobs(&db).await);
    db.finish().await;
}

async fn producers(db: &TestDb, count: usize, rounds: usize) {
    let mut producers = JoinSet::new();
    for n in 0..count {
        let mut on = db.connect().await;
        producers.spawn(async move {
            for round in 0..rounds {
                let key = format!("key {}", (n + round) % 2);
                let mut tx = on.begin().await.unwrap();
                say(&key).enqueue(&mut tx).unique(&key).await.unwrap();
                if round % 4 == 3 { tx.rollback().await.unwrap() } else { tx.commit().await.unwrap() }
            }
        });
    }
    producers.join_all().await;
}

async fn workers(db: &TestDb, stopped: &AtomicBool) {
    let mut on = db.connect().await;
    let worker = register(&mut on).await.unwrap();
    for verdict in ["plain", "release", "complete", "cancel", "plain", "dead"].into_iter().cycle() {
        if stopped.load(Ordering::SeqCst) {
            return;
        }
        let lease = claim(&mut on, worker, 1).await.unwrap();
        if !lease.jobs.is_empty() {
            assert_eq!(settle(&mut on, &lease.all(verdict)).await.unwrap(), []);
        }
    }
}

async fn forget(db: &TestDb, stopped: &AtomicBool) {
    let mut on = db.connect().await;
    while !stopped.load(Ordering::SeqCst) {
        sqlx::query(include_str!("../../../queue-worker/sql/forget_keys.sql")).bind(100).execute(&mut on).await.unwrap();
    }
}

/// After an enqueue has reported a replaced payload, a claim of the job returns the new payload.
#[tokio::test]
async fn a_claim_never_returns_a_payload_that_was_replaced_before() {
    let db = TestDb::new().await;
    let (stopped, next) = (AtomicBool::new(false), AtomicU64::new(0));
    let produce = async || {
        let mut on = db.connect().await;
        let mut last: BTreeMap<JobId, u64> = BTreeMap::new();
        for _ in 0..200 {
            let n = next.fetch_add(1, Ordering::SeqCst);
            let enqueue = say(&n.to_string()).enqueue(&mut on).unique("key").unique_while(While::Queued);
            last.insert(enqueue.on_conflict(OnConflict::Replace).await.unwrap().id(), n);
        }
        last
    };
    let claimed = async {
        let mut on = db.connect().await;
        let worker = register(&mut on).await.unwrap();
        let mut given = BTreeMap::new();
        loop {
            let last = stopped.load(Ordering::SeqCst);
            given.extend(claim_payloads(&mut on, worker).await);
            if last {
                return given;
            }
        }
    };
    let (last, given) = tokio::join!(
        async {
            let last = produce().await;
            stopped.store(true, Ordering::SeqCst);
            last
        },
        claimed
    );
    assert!(given.len() > 10, "some were claimed in between: {}", given.len());
    assert_eq!(last, given);
    db.finish().await;
}

/// Claims jobs, and reads their payloads from the result of the claim, as a worker does.
async fn claim_payloads(on: &mut PgConnection, worker: uuid::Uuid) -> Vec<(JobId, u64)> {
    let lanes: Vec<i64> = on.all("select distinct lane from queue.lane").await;
    let token = uuid::Uuid::new_v4();
    let claim = sqlx::query(include_str!("../../../queue-worker/sql/claim.sql")).bind(token).bind(worker).bind(&lanes);
    let rows = claim
        .bind(vec![0_i64; lanes.len()])
        .bind(vec![9; lanes.len()])
        .bind(9)
        .bind(i32::MAX)
        .bind(Vec::<i64>::new())
        .bind(i64::MIN)
        .bind(i64::MAX)
        .fetch_all(&mut *on)
        .await
        .unwrap();
    let number =
        |payload: String| serde_json::from_str::<serde_json::Value>(&payload).unwrap()["act"]["Ok"].as_str().unwrap().parse().unwrap();
    let given = rows.iter().map(|row| (row.get("id"), number(row.get("payload")))).collect();
    let held: Vec<ClaimedJob> = rows.iter().map(|row| sqlx::FromRow::from_row(row).unwrap()).collect();
    let verdicts: Vec<JobVerdict> = Lease { token, jobs: held }.all("plain");
    assert_eq!(settle(on, &verdicts).await.unwrap(), []);
    given
}

/// A producer waits for an uncommitted claim. The producer enqueues a new job only if the claim commits.
#[tokio::test]
async fn a_queued_key_waits_for_a_claim_that_is_not_committed() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    for (on_conflict, commits) in
        [(OnConflict::Keep, true), (OnConflict::Keep, false), (OnConflict::Replace, true), (OnConflict::Debounce, false)]
    {
        let enqueue = |on_conflict| say("1").enqueue(&db.pool).unique("key").unique_while(While::Queued).on_conflict(on_conflict);
        let first = enqueue(OnConflict::Keep).await.unwrap();
        let mut claiming = on.begin().await.unwrap();
        assert_eq!(claim(&mut claiming, worker, 1).await.unwrap().ids(), [first.id()]);
        let (second, ()) = tokio::join!(enqueue(on_conflict), async {
            db.until_waiting(1).await;
            if commits { claiming.commit().await.unwrap() } else { claiming.rollback().await.unwrap() }
        });
        let second = second.unwrap();
        assert_eq!(second.outcome() == EnqueueOutcome::New, commits, "{on_conflict:?}");
        assert_eq!(second.id() != first.id(), commits);
        end(&mut on, "plain").await;
    }
    db.finish().await;
}

/// A transaction that found a queued job keeps the job queued until the transaction ends. Therefore the job sees the transaction's
/// writes.
#[tokio::test]
async fn a_job_that_was_found_queued_is_not_claimed_before_the_transaction_that_found_it_ends() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    let enqueue = |text| say(text).enqueue(&db.pool).unique("key").unique_while(While::Queued);
    let first = enqueue("1").await.unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    let same = say("2").enqueue(&mut tx).unique("key").await.unwrap();
    assert_eq!(same.id(), first.id());
    assert_eq!(claim(&mut on, worker, 1).await.unwrap().ids(), []);
    tx.commit().await.unwrap();
    assert_eq!(claim(&mut on, worker, 1).await.unwrap().ids(), [first.id()]);
    db.finish().await;
}
