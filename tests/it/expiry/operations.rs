//! Tests operations on jobs that expire, and the expiry of paused, postponed and keyed jobs.

use std::time::Duration;

use queue_core::{Error, Job as _, JobState, Queue, operate::Scope, testing};
use tests::{
    Act, Do, TestDb, effects, eventually,
    operate::{self as steps, expire_due},
    protocol::{claim, register, settle},
};

use super::{HOUR, connect, count_entries, enqueue, expire_now, ok, stored_expiry};

#[tokio::test]
async fn a_job_that_is_requeued_may_begin_at_any_time() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let (expired, other) = (ok(&db).await, ok(&db).await);
    expire_now(&db, &[expired, other]).await;
    assert_eq!(expire_due(&mut on).await.unwrap(), 2);
    let keyed = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).key("a").meta("b", 1).expires_in(HOUR).await.unwrap().id();
    expire_now(&db, &[keyed]).await;
    assert_eq!(expire_due(&mut on).await.unwrap(), 1);
    // A dead letter counts as started until it is requeued.
    let dead = enqueue(&db, Act::FailUntil(2)).await.id();
    let worker = register(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 1).await.unwrap();
    assert_eq!(settle(&mut on, &lease.all("dead")).await.unwrap(), []);
    expire_now(&db, &[dead]).await;
    for job in [expired, keyed, dead] {
        sqlx::query("select queue.requeue($1)").bind(job).execute(&mut on).await.unwrap();
        assert_eq!(stored_expiry(&db, job).await, None);
    }
    assert_eq!(db.count("select count(*) from queue.job where meta = '{\"b\": 1}'").await, 1, "its other metadata stay");
    assert_eq!(expire_due(&mut on).await.unwrap(), 0);
    assert!(stored_expiry(&db, other).await.is_some(), "only theirs are forgotten");
    let are_finished =
        async || db.count("select count(*) from queue.jobs where state in ('ready', 'blocked', 'running', 'scheduled')").await == 0;
    sqlx::query("delete from queue.worker").execute(&mut on).await.unwrap();
    db.run_while(db.worker(), async {
        eventually("they are begun", async || db.count("select count(distinct job) from effect").await == 3).await;
        sqlx::query("update queue.scheduled set run_at = now()").execute(&db.pool).await.unwrap();
        eventually("they have finished", are_finished).await;
    })
    .await;
    assert_eq!((effects(&db.pool, expired).await.unwrap(), effects(&db.pool, other).await.unwrap()), (1, 0));
    assert_eq!(db.state(other).await, Some(JobState::Expired));
    db.finish().await;
}

#[tokio::test]
async fn a_job_of_a_paused_queue_expires_and_a_postponed_one_does_at_its_time() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let scope = Scope::queue("default");
    Queue::new(&db.pool).pause(&scope).await.unwrap();
    let (paused, put_off) = (ok(&db).await, ok(&db).await);
    assert_eq!(steps::reschedule(&mut on, &[put_off]).await.unwrap(), [put_off]);
    expire_now(&db, &[paused, put_off]).await;
    let both = async || db.state(paused).await == Some(JobState::Expired) && db.state(put_off).await == Some(JobState::Expired);
    db.run_while(db.worker(), eventually("both have expired", both)).await;
    db.finish().await;
}

#[tokio::test]
async fn an_expired_job_frees_its_capacity_and_its_key_continues() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    Queue::new(&db.pool).set_capacity("default", Some(2)).await.unwrap();
    let quick = || Do { act: Act::Ok(String::new()) }.enqueue(&db.pool);
    let head = quick().key("a").expires_in(HOUR).await.unwrap().id();
    let behind = quick().key("a").await.unwrap().id();
    assert!(matches!(quick().await, Err(Error::AtCapacity { .. })));
    expire_now(&db, &[head, behind]).await;
    assert_eq!(expire_due(&mut on).await.unwrap(), 1, "the other is not checked");
    let third = quick().await.unwrap().id();
    assert_eq!(steps::unblock(&mut on).await.unwrap(), 1);
    assert_eq!((db.state(behind).await, db.state(third).await), (Some(JobState::Ready), Some(JobState::Ready)));
    steps::cancel(&mut on, &[behind]).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn expired_jobs_are_pruned_with_the_history() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let job = ok(&db).await;
    expire_now(&db, &[job]).await;
    assert_eq!(expire_due(&mut on).await.unwrap(), 1);
    steps::keep_types(&mut on, 0.000_001).await.unwrap();
    assert_eq!(steps::prune_early(&mut on).await.unwrap(), 1);
    assert_eq!((db.state(job).await, count_entries(&db, job).await), (None, 0));
    db.finish().await;
}

#[tokio::test]
async fn in_a_test_a_job_expires_after_the_simulated_time() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    let quick = || Do { act: Act::Ok(String::new()) };
    let soon = quick().enqueue(&mut tx).expires_in(Duration::from_mins(1)).await.unwrap().id();
    let late = quick().enqueue(&mut tx).expires_in(Duration::from_mins(10)).await.unwrap().id();
    let later = quick().enqueue(&mut tx).after(Duration::from_secs(200)).expires_in(Duration::from_mins(1)).await.unwrap().id();
    let drained = testing::drain(&mut tx).advance(Duration::from_secs(100)).pool(&db.pool).register::<Do>().await.unwrap();
    assert_eq!((drained.expired.clone(), drained.completed()), (vec![soon], 1), "{drained:?}");
    assert_eq!(drained.of(late).count(), 1);
    let drained = testing::drain(&mut tx).advance(Duration::from_secs(101)).pool(&db.pool).register::<Do>().await.unwrap();
    assert_eq!((drained.expired.len(), drained.of(later).count()), (0, 1));
    tx.rollback().await.unwrap();
    db.finish().await;
}
