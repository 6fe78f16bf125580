//! Tests combinations of features in one job: ordering keys, uniqueness, capacity and operations.

use std::time::Duration;

use queue_core::{Batch, EnqueueOutcome, Error, Job as _, JobHandle, JobId, JobRef, JobState, Queue};
use sqlx::{Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, operate,
    protocol::{Lease, claim, give_back, recover, register, settle, silence},
};

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn keyed(db: &TestDb) -> JobId {
    quick().enqueue(&db.pool).key("a").await.unwrap().id()
}

async fn lease(connection: &mut PgConnection) -> Lease {
    let worker = register(connection).await.unwrap();
    claim(connection, worker, 10).await.unwrap()
}

async fn cancel_running(connection: &mut PgConnection, job: JobId) {
    let answer: String = sqlx::query_scalar("select queue.cancel($1)").bind(job).fetch_one(connection).await.unwrap();
    assert_eq!(answer, "cancelling");
}

/// Checks that `cancelled` is cancelled, and that the job `next` behind it can run.
async fn check_next_runs(db: &TestDb, connection: &mut PgConnection, cancelled: JobId, next: JobId) {
    assert_eq!(db.state(cancelled).await, Some(JobState::Cancelled));
    assert_eq!(db.state(next).await, Some(JobState::Blocked));
    assert_eq!(operate::unblock(connection).await.unwrap(), 1);
    assert_eq!(db.state(next).await, Some(JobState::Ready));
}

#[tokio::test]
async fn the_head_of_a_key_that_is_cancelled_in_any_state_releases_the_next() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    let (waiting, settled, recovered) = (keyed(&db).await, keyed(&db).await, keyed(&db).await);
    let (given_back, in_line, last) = (keyed(&db).await, keyed(&db).await, keyed(&db).await);
    JobRef::from_id(waiting).cancel(&mut c).await.unwrap();
    check_next_runs(&db, &mut c, waiting, settled).await;

    let held = lease(&mut c).await;
    cancel_running(&mut c, settled).await;
    assert!(settle(&mut c, &held.all("retry")).await.unwrap().is_empty());
    check_next_runs(&db, &mut c, settled, recovered).await;

    let worker = register(&mut c).await.unwrap();
    assert_eq!(claim(&mut c, worker, 10).await.unwrap().ids(), [recovered]);
    cancel_running(&mut c, recovered).await;
    silence(&mut c, worker).await.unwrap();
    recover(&mut c).await.unwrap();
    check_next_runs(&db, &mut c, recovered, given_back).await;

    let held = lease(&mut c).await;
    cancel_running(&mut c, given_back).await;
    give_back(&mut c, held.token).await.unwrap();
    JobRef::from_id(in_line).cancel(&mut c).await.unwrap();
    assert_eq!(db.state(in_line).await, Some(JobState::Cancelled));
    check_next_runs(&db, &mut c, given_back, last).await;
    assert_eq!(lease(&mut c).await.ids(), [last]);
    db.finish().await;
}

#[tokio::test]
async fn a_cancelled_head_wakes_the_promoter_of_keys() {
    let db = TestDb::new().await;
    let head = quick().enqueue(&db.pool).key("a").after(Duration::from_mins(10)).await.unwrap().id();
    let next = keyed(&db).await;
    db.run_while(db.worker(), async {
        tests::eventually("the worker sleeps", async || db.count("select count(*) from queue.idle").await == 1).await;
        assert_eq!(db.state(next).await, Some(JobState::Blocked));
        JobRef::from_id(head).cancel(&mut connect(&db).await).await.unwrap();
        db.until(next, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_unique_job_that_is_blocked_is_found_replaced_and_postponed() {
    let db = TestDb::new().await;
    let mut c = connect(&db).await;
    let head = keyed(&db).await;
    let behind = async |act: Act, conflict| -> JobHandle<Do> {
        Do { act }
            .enqueue(&db.pool)
            .key("a")
            .unique("u")
            .unique_while(queue_core::options::While::Queued)
            .on_conflict(conflict)
            .await
            .unwrap()
    };
    let first = behind(Act::Ok("1".into()), queue_core::OnConflict::Keep).await;
    let kept = behind(Act::Ok("2".into()), queue_core::OnConflict::Keep).await;
    assert_eq!((kept.id(), kept.outcome()), (first.id(), EnqueueOutcome::Kept));
    let replaced = behind(Act::Ok("3".into()), queue_core::OnConflict::Replace).await;
    assert_eq!((replaced.id(), replaced.outcome()), (first.id(), EnqueueOutcome::Replaced));
    assert_eq!(db.count("select count(*) from queue.job where payload #>> '{act,Ok}' = '3'").await, 1);
    let later = Do { act: Act::Ok("4".into()) }.enqueue(&db.pool).key("a").unique("u").after(Duration::from_mins(10));
    assert_eq!(later.on_conflict(queue_core::OnConflict::Debounce).await.unwrap().outcome(), EnqueueOutcome::Debounced);
    assert_eq!(db.count("select count(*) from queue.blocked where run_at > now()").await, 1);

    let held = lease(&mut c).await;
    assert_eq!(held.ids(), [head]);
    assert!(settle(&mut c, &held.all("complete")).await.unwrap().is_empty());
    operate::unblock(&mut c).await.unwrap();
    assert_eq!(db.state(first.id()).await, Some(JobState::Scheduled), "it continues once it is due");
    db.finish().await;
}

#[tokio::test]
async fn blocked_jobs_count_towards_the_capacity_of_their_queue() {
    let db = TestDb::new().await;
    Queue::on(&mut connect(&db).await).set_capacity("default", Some(5)).await.unwrap();
    for _ in 0..5 {
        keyed(&db).await;
    }
    let refused = quick().enqueue(&db.pool).key("a").await;
    assert!(matches!(refused, Err(Error::AtCapacity { capacity: 5, .. })), "{refused:?}");
    assert!(quick().enqueue(&db.pool).unless_at_capacity().key("b").await.unwrap().is_none());
    let mut batch = Batch::new();
    batch.add(quick()).unwrap().key("c");
    assert!(matches!(batch.enqueue(&db.pool).await, Err(Error::AtCapacity { .. })));
    assert_eq!(db.count("select count(*) from queue.job").await, 5);
    db.finish().await;
}

#[tokio::test]
async fn a_batch_of_one_key_runs_in_the_order_given() {
    let db = TestDb::new().await;
    let mut batch = Batch::new();
    for n in 0..20 {
        batch.add(Do { act: Act::Ok(n.to_string()) }).unwrap().key("a");
    }
    let ids = batch.enqueue(&db.pool).await.unwrap();
    db.run_until_idle(db.worker()).await;
    let order: Vec<JobId> = sqlx::query_scalar("select job from effect order by at").fetch_all(&db.pool).await.unwrap();
    assert_eq!(order, ids);
    db.finish().await;
}
