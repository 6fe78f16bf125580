//! Tests that every operation on waiting jobs handles jobs in fair queues.

use std::time::Duration;

use queue_core::{
    Job as _, JobId, JobRef, JobState, Queue, Store,
    operate::{Filter, Operation, Scope},
};
use sqlx::Connection as _;
use tests::{Act, Do, Sql as _, TestDb, eventually, fair_queues::move_to_fair_lanes};

use super::key_of;

async fn enqueue(db: &TestDb, key: &str) -> JobId {
    Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).fair(key).await.unwrap().id()
}

fn store() -> Store {
    Store::default()
}

#[tokio::test]
async fn a_queued_fair_job_is_shown_as_ready_everywhere() {
    let db = TestDb::new().await;
    let job = enqueue(&db, "a").await;
    let by_ref = JobRef::from_id(job);
    assert_eq!(by_ref.state(&db.pool).await.unwrap(), JobState::Ready);
    let found = by_ref.find(&db.pool).await.unwrap();
    assert_eq!((found.state, found.queue.as_str(), found.job_type.as_str(), found.priority), (JobState::Ready, "default", "do", 100));
    let filter = Filter { queue: Some("default".into()), ..Filter::default() }.job_type("do");
    let listed = Queue::new(&db.pool).store(store()).jobs().matching(&filter).list().await.unwrap();
    assert_eq!(listed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [job]);
    let counts = Queue::new(&db.pool).store(store()).counts().await.unwrap();
    assert!(counts.len() == 1 && counts[0].state == JobState::Ready && counts[0].jobs == 1, "{counts:?}");
    assert_eq!(Queue::new(&db.pool).store(store()).oldest().await.unwrap().len(), 1);
    assert_eq!(Queue::new(&db.pool).store(store()).backlog("default", 10).await.unwrap().ready, 1);
    assert_eq!(Queue::new(&db.pool).store(store()).unserved().await.unwrap().len(), 1);
    assert_eq!(db.count("select waiting from queue.depth('default')").await, 1);
    assert_eq!(db.count("select count(*) from queue.unfinished_job").await, 1);
    Queue::new(&db.pool).store(store()).pause(&Scope::queue("default")).await.unwrap();
    assert_eq!(db.count("select ready from queue.pauses()").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_queued_fair_job_counts_towards_its_capacity() {
    let db = TestDb::new().await;
    Queue::new(&db.pool).store(store()).set_capacity("default", Some(2)).await.unwrap();
    enqueue(&db, "a").await;
    enqueue(&db, "a").await;
    let job = || Do::ok();
    for refused in [job().enqueue(&db.pool).fair("b").await, job().enqueue(&db.pool).await] {
        assert!(matches!(refused, Err(queue_core::Error::AtCapacity { .. })), "{refused:?}");
    }
    assert!(Do::enqueue_all([job()], &db.pool).fair("b").await.is_err());
    assert_eq!(Queue::new(&db.pool).store(store()).capacities().await.unwrap()[0].waiting, 2);
    db.finish().await;
}

#[tokio::test]
async fn a_queued_fair_job_is_cancelled_by_id_and_by_a_filter() {
    let db = TestDb::new().await;
    let jobs = [enqueue(&db, "a").await, enqueue(&db, "a").await, enqueue(&db, "b").await];
    JobRef::from_id(jobs[1]).cancel(&db.pool).await.unwrap();
    assert_eq!(db.state(jobs[1]).await, Some(JobState::Cancelled));
    let all = Queue::new(&db.pool).store(store()).jobs().matching(&Filter::default().job_type("do")).cancel().await.unwrap();
    assert_eq!(all.done, 2, "{all:?}");
    assert_eq!(db.count("select count(*) from queue.done where cancelled").await, 3);
    db.finish().await;
}

#[tokio::test]
async fn a_postponed_or_reprioritised_job_returns_to_its_fair_queue() {
    let (db, mut on) = TestDb::with_connection().await;
    let job = enqueue(&db, "a").await;
    let by_ref = JobRef::from_id(job);
    by_ref.snooze(&db.pool, Duration::from_mins(1)).await.unwrap();
    assert_eq!(db.state(job).await, Some(JobState::Scheduled));
    by_ref.run_now(&db.pool).await.unwrap();
    assert_eq!((db.state(job).await, move_to_fair_lanes(&mut on, 10).await.unwrap()), (Some(JobState::Ready), 1));
    assert_eq!(key_of(&mut on, job, &["a"]).await.as_deref(), Some("a"));
    by_ref.set_priority(&db.pool, 7).await.unwrap();
    assert_eq!((db.state(job).await, move_to_fair_lanes(&mut on, 10).await.unwrap()), (Some(JobState::Ready), 1));
    assert_eq!(key_of(&mut on, job, &["a"]).await.as_deref(), Some("a"));
    assert_eq!(by_ref.find(&db.pool).await.unwrap().priority, 7);
    by_ref.reschedule(&db.pool, chrono::Utc::now() + chrono::Duration::hours(1)).await.unwrap();
    Queue::new(&db.pool).store(store()).jobs().run_now().await.unwrap();
    db.run_until_idle(db.worker()).await;
    assert_eq!(db.state(job).await, Some(JobState::Completed));
    by_ref.requeue(&db.pool).await.unwrap();
    assert_eq!(move_to_fair_lanes(&mut on, 10).await.unwrap(), 1, "a completed one that is brought back");
    db.run_until_idle(db.worker()).await;
    db.finish().await;
}

#[tokio::test]
async fn an_operation_skips_a_job_that_is_being_claimed_and_a_claim_one_that_is_being_changed() {
    let (db, mut on, mut other) = TestDb::with_connections().await;
    let job = enqueue(&db, "a").await;
    let worker = tests::protocol::register(&mut on).await.unwrap();
    let mut open = on.begin().await.unwrap();
    assert_eq!(tests::fair_queues::claim_fair(&mut open, worker, 0, 10).await.unwrap().lease.ids(), [job]);
    let acted =
        sqlx::query_scalar::<_, i64>("select count(*) from queue.cancel_waiting_all(array[$1::bigint])").bind(job).fetch_one(&mut other);
    assert_eq!(acted.await.unwrap(), 0);
    open.rollback().await.unwrap();
    let mut open = other.begin().await.unwrap();
    let cancel = sqlx::query_scalar::<_, i64>("select count(*) from queue.cancel_waiting_all(array[$1::bigint])").bind(job);
    assert_eq!(cancel.fetch_one(&mut *open).await.unwrap(), 1);
    assert_eq!(tests::fair_queues::claim_fair(&mut on, worker, 0, 10).await.unwrap().lease.ids(), []);
    open.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn no_queued_fair_job_begins_while_its_queue_is_paused() {
    let db = TestDb::new().await;
    Queue::new(&db.pool).store(store()).pause_with_reason(&Scope::job_type("do"), Some("as told")).await.unwrap();
    let job = enqueue(&db, "a").await;
    db.run_while(db.worker(), async {
        assert!(Queue::new(&db.pool).store(store()).until_paused(&Scope::job_type("do")).await.unwrap());
        assert_eq!(db.state(job).await, Some(JobState::Ready));
        Queue::new(&db.pool).store(store()).resume(&Scope::job_type("do")).await.unwrap();
        db.until(job, JobState::Completed).await;
    })
    .await;
    assert_eq!(tests::effects(&db.pool, job).await.unwrap(), 1);
    db.finish().await;
}

#[tokio::test]
async fn a_queued_fair_job_holds_its_uniqueness_key_and_is_replaced_in_its_fair_queue() {
    let (db, mut on) = TestDb::with_connection().await;
    let enqueue = |conflict: &'static str, text: &'static str, after: Option<f64>| {
        let options =
            serde_json::json!({ "fair": "a", "unique_key": "u", "unique_while": "queued", "on_conflict": conflict, "after": after });
        let payload = serde_json::json!({ "act": { "Ok": text } });
        sqlx::query_as::<_, (JobId, String)>("select e.id, e.outcome from queue.enqueue_with('do', $1, $2) e").bind(payload).bind(options)
    };
    let (job, outcome) = enqueue("keep", "first", None).fetch_one(&mut on).await.unwrap();
    assert_eq!(outcome, "enqueued");
    assert_eq!(enqueue("keep", "second", None).fetch_one(&mut on).await.unwrap(), (job, "kept".to_owned()));
    assert_eq!(enqueue("replace", "third", None).fetch_one(&mut on).await.unwrap(), (job, "replaced".to_owned()));
    assert_eq!(key_of(&mut on, job, &["a"]).await.as_deref(), Some("a"), "in its place");
    assert_eq!(db.count("select queue.forget_keys(100)::bigint").await, 0, "it waits still");
    assert_eq!(enqueue("debounce", "x", Some(3600.0)).fetch_one(&mut on).await.unwrap(), (job, "debounced".to_owned()));
    assert_eq!(db.state(job).await, Some(JobState::Scheduled));
    assert_eq!(db.count("select count(*) from queue.scheduled s join queue.lane l on l.lane = s.lane and not l.paired").await, 1);
    JobRef::from_id(job).run_now(&db.pool).await.unwrap();
    db.run_until_idle(db.worker()).await;
    let output: String = on.one(&format!("select output #>> '{{}}' from queue.done where id = {job}")).await;
    assert_eq!(output, "third");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_filter_visits_each_fair_queue_once_and_a_dead_job_is_discarded() {
    let db = TestDb::new().await;
    for n in 0..2500 {
        enqueue(&db, &(n % 7).to_string()).await;
    }
    let done = Queue::new(&db.pool).store(store()).jobs().set_priority(3).await.unwrap();
    assert_eq!(done.done, 2500, "{done:?}");
    let dead = Do { act: Act::Terminal("x".into()) }.enqueue(&db.pool).fair("a").priority(9).await.unwrap().id();
    db.run_while(db.worker(), eventually("dead", async || db.state(dead).await == Some(JobState::Dead))).await;
    JobRef::from_id(dead).apply(&db.pool, Operation::Discard).await.unwrap();
    assert_eq!(db.state(dead).await, None);
    db.finish().await;
}
