//! Tests the handle to a store on a pool, on a connection and in a transaction.

use std::time::Duration;

use queue_core::{
    Job as _, JobState, Queue, Store,
    operate::{Filter, Scope},
};
use sqlx::Connection as _;
use tests::{Act, Do, TestDb};

#[tokio::test]
async fn a_handle_on_a_transaction_changes_nothing_before_the_commit() {
    let (db, mut on) = TestDb::with_connection().await;
    let job = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).meta("tenant", "acme").await.unwrap();
    for commits in [false, true] {
        let mut tx = on.begin().await.unwrap();
        let queue = Queue::on(&mut tx);
        queue.pause("default").await.unwrap();
        assert_eq!(queue.jobs().meta("tenant", "acme").cancel().await.unwrap().done, 1);
        assert_eq!(queue.job(job.id()).state().await.unwrap(), JobState::Cancelled);
        let outside = Queue::new(&db.pool);
        assert_eq!(outside.job(job.id()).state().await.unwrap(), JobState::Ready, "not yet");
        assert!(outside.pauses().await.unwrap().is_empty(), "not yet");
        let end = if commits { tx.commit().await } else { tx.rollback().await };
        end.unwrap();
        let (state, pauses) = if commits { (JobState::Cancelled, 1) } else { (JobState::Ready, 0) };
        assert_eq!(outside.job(job.id()).state().await.unwrap(), state);
        assert_eq!(outside.pauses().await.unwrap().len(), pauses);
    }
    db.finish().await;
}

#[tokio::test]
async fn concurrent_calls_on_one_connection_run_one_after_another() {
    let (db, mut on) = TestDb::with_connection().await;
    let queue = Queue::on(&mut on);
    let (paused, counts, workers) =
        tokio::join!(queue.pause_with_reason(Scope::job_type("do"), Some("a release")), queue.counts(), queue.workers());
    assert!(paused.is_ok() && counts.is_ok() && workers.is_ok(), "{paused:?} {counts:?} {workers:?}");
    // A dropped call leaves the connection free for the next one.
    let _ = tokio::time::timeout(Duration::ZERO, queue.counts()).await;
    assert_eq!(queue.resume(Scope::job_type("do")).await.ok(), Some(true));
    db.finish().await;
}

#[tokio::test]
async fn a_handle_names_one_store() {
    let db = TestDb::new().await;
    let job = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap();
    let other = Store::new("other").unwrap();
    let mut on = db.connect().await;
    queue_core::migrate(&mut on, other).await.unwrap();
    for (store, jobs) in [(Store::default(), 1), (other, 0)] {
        let (pooled, lent) = (Queue::new(&db.pool).store(store), Queue::on(&mut on).store(store));
        assert_eq!(pooled.jobs().list().await.unwrap().jobs.len(), jobs, "{store:?}");
        assert_eq!(lent.jobs().list().await.unwrap().jobs.len(), jobs, "{store:?}");
        assert_eq!(pooled.clone().job(job.id()).find().await.is_ok(), jobs == 1, "{store:?}");
        assert_eq!(lent.job(job.id()).why().await.unwrap().is_absent(), jobs == 0, "{store:?}");
        assert_eq!(format!("{pooled:?} {:?}", lent.job(job.id())), format!("Queue({0}) QueueJob({1} in {0})", store.schema(), job.id()));
    }
    db.finish().await;
}

#[tokio::test]
async fn a_limit_and_a_bound_of_a_selection_apply_to_operations_and_counts() {
    let db = TestDb::new().await;
    let queue = Queue::new(&db.pool);
    let jobs = Do::enqueue_all((0..6).map(|_| Do { act: Act::Ok("x".into()) }), &db.pool).returning_ids().await.unwrap();
    assert_eq!(queue.jobs().cancel().count().await.unwrap(), 6);
    assert_eq!(queue.jobs().limit(2).cancel().count().await.unwrap(), 2);
    assert_eq!(queue.jobs().before(jobs[3].id()).cancel().count().await.unwrap(), 3);
    assert_eq!(queue.jobs().before(jobs[3].id()).limit(2).cancel().await.unwrap().done, 2);
    let cancelled = queue.jobs().state(JobState::Cancelled).list().await.unwrap().jobs;
    assert!(cancelled.len() == 2 && cancelled.iter().all(|job| job.id < jobs[3].id()), "{cancelled:?}");
    assert_eq!(
        queue.jobs().matching(&Filter { limit: 1, before: Some(jobs[0].id()), ..Filter::default() }).cancel().await.unwrap().done,
        4
    );
    db.finish().await;
}

#[tokio::test]
async fn each_method_of_a_selection_sets_its_field_of_the_filter() {
    let db = TestDb::new().await;
    let queue = Queue::new(&db.pool);
    let (hour, day) = (Duration::from_hours(1), Duration::from_hours(24));
    let chosen = queue.jobs().state(JobState::Dead).queue("mail").of_type::<Do>().job_type("other").meta("tenant", "acme");
    let chosen = chosen.since(day).older_than(hour).error("refused").limit(7).before(queue_core::JobId(9)).with_payloads();
    let filter = Filter {
        state: Some(JobState::Dead),
        queue: Some("mail".into()),
        job_types: vec!["do".into(), "other".into()],
        since: Some(day),
        older_than: Some(hour),
        error: Some("refused".into()),
        limit: 7,
        before: Some(queue_core::JobId(9)),
        payload: true,
        ..Filter::default()
    };
    let filter = filter.meta("tenant", "acme");
    assert_eq!(format!("{chosen:?}"), format!("{:?}", queue.jobs().matching(&filter)).replace("at_most: None", "at_most: Some(7)"));
    db.finish().await;
}
