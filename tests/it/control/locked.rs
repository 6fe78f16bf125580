//! Tests operations on rows that an open transaction has locked. An operation on one job reports the lock, and a bulk operation skips the
//! job. Neither waits until the transaction ends.

use std::time::Duration;

use queue_core::{
    Error, Job as _, JobState, Queue,
    operate::{BulkOutcome, Operation, OperationOutcome},
    options::KeyPolicy,
};
use sqlx::{Connection as _, Executor as _};
use tests::{
    TestDb,
    protocol::{claim, register, settle},
};

use super::{HOUR, act, connect, enqueue, ok};

#[tokio::test]
async fn a_job_that_an_open_transaction_has_locked_is_reported_as_locked() {
    let db = TestDb::new().await;
    let job = enqueue(&db).await;
    let mut holder = connect(&db).await;
    let mut tx = holder.begin().await.unwrap();
    sqlx::query("select from queue.ready where id = $1 for update").bind(job).execute(&mut *tx).await.unwrap();
    for what in [Operation::Cancel, Operation::Snooze(HOUR), Operation::Priority(1)] {
        let error = act(&mut connect(&db).await, job, what).await.unwrap_err();
        assert!(matches!(error, Error::Locked { state: JobState::Ready, .. }), "{error}");
    }
    let refusal = sqlx::query("select queue.cancel($1)").bind(job).execute(&db.pool).await.unwrap_err();
    assert!(refusal.to_string().contains("another transaction has it locked"), "{refusal}");
    tx.rollback().await.unwrap();
    assert_eq!(act(&mut connect(&db).await, job, Operation::Cancel).await.unwrap(), OperationOutcome::Done);
    db.finish().await;
}

/// Each case names a row or key locked by an open transaction, and an operation that must not wait until that transaction ends.
#[tokio::test]
#[ignore = "deep"]
async fn no_operation_waits_forever_for_an_open_transaction() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let worker = register(&mut on).await.unwrap();
    for (verdict, locks, what) in [
        ("dead", "select from queue.dead for update", Operation::Requeue),
        ("dead", "select from queue.dead for update", Operation::Discard),
        ("dead", "select queue.lock_key(key) from queue.job", Operation::Requeue),
        ("complete", "select from queue.done for update", Operation::Requeue),
        ("plain", "select from queue.done_many for update", Operation::Requeue),
        ("plain", "select queue.lock_key(key) from queue.job", Operation::Requeue),
        ("", "select from queue.lease for update", Operation::Cancel),
    ] {
        let key_policy = if verdict == "dead" { KeyPolicy::Skip } else { KeyPolicy::Block };
        let job = ok().enqueue(&db.pool).key("key").key_policy(key_policy).await.unwrap().id();
        let lease = claim(&mut on, worker, 1).await.unwrap();
        if !verdict.is_empty() {
            assert_eq!(settle(&mut on, &lease.all(verdict)).await.unwrap(), []);
        }
        let mut holder = connect(&db).await;
        let mut tx = holder.begin().await.unwrap();
        tx.execute(locks).await.unwrap();
        let mut operator = connect(&db).await;
        let one = tokio::time::timeout(Duration::from_secs(10), act(&mut operator, job, what)).await;
        let error = one.unwrap_or_else(|_| panic!("{what:?} waits for `{locks}`")).unwrap_err();
        assert!(matches!(error, Error::Locked { job: named, .. } if named == job), "{error}");
        let queue = Queue::on(&mut operator);
        let all = tokio::time::timeout(Duration::from_secs(10), queue.jobs().apply(what))
            .await
            .unwrap_or_else(|_| panic!("{what:?} of all waits"));
        assert_eq!(all.unwrap(), BulkOutcome::default(), "locked jobs are skipped");
        tx.rollback().await.unwrap();
        act(&mut operator, job, what).await.unwrap();
        db.pool.execute("select queue.unblock(0, 10)").await.unwrap();
        Queue::on(&mut operator).jobs().apply(Operation::Cancel).await.unwrap();
        if verdict.is_empty() {
            assert_eq!(settle(&mut on, &lease.all("retry")).await.unwrap(), []);
        }
        db.pool.execute("select queue.unblock(0, 10)").await.unwrap();
    }
    db.finish().await;
}
