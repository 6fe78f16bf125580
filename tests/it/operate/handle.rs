//! Tests the handle to a store on a pool, on a connection and in a transaction.

use std::time::Duration;

use queue_core::{
    Job as _, JobState, Queue, Store,
    operate::{Filter, Operation, Scope},
};
use sqlx::Connection as _;
use tests::{
    Act, Do, Sql as _, TestDb,
    protocol::{claim, settle},
};

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
async fn a_limit_and_a_bound_of_a_selection_apply_to_operations_and_counts_in_every_state() {
    for state in [JobState::Ready, JobState::Scheduled, JobState::Blocked, JobState::Running, JobState::Parked, JobState::Dead] {
        let (db, mut on, worker) = TestDb::with_worker().await;
        let mut jobs = Vec::new();
        for _ in 0..6 {
            let job = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool);
            let job = match state {
                JobState::Scheduled => job.after(Duration::from_hours(1)),
                JobState::Blocked => job.key("a"),
                _ => job,
            };
            jobs.push(job.await.unwrap().id());
        }
        if matches!(state, JobState::Running | JobState::Dead) {
            let lease = claim(&mut on, worker, 6).await.unwrap();
            if state == JobState::Dead {
                settle(&mut on, &lease.all("dead")).await.unwrap();
            }
        }
        if state == JobState::Parked {
            let park = "with gone as (delete from queue.ready returning id, lane, attempts, crashes)
                insert into queue.parked (id, lane, attempts, crashes, since, names)
                select id, lane, attempts, crashes, now(), '{}' from gone";
            on.run(park).await;
        }
        let queue = Queue::new(&db.pool);
        // The first job of an ordering key is ready, and the others are blocked.
        let first = usize::from(state == JobState::Blocked);
        let chosen = queue.jobs().state(state);
        let operation = if state == JobState::Dead { Operation::Discard } else { Operation::Cancel };
        for (jobs, expected) in [
            (chosen.clone(), 6 - first),
            (chosen.clone().limit(2), 2),
            (chosen.clone().before(jobs[3]), 3 - first),
            (queue.jobs().matching(&Filter { state: Some(state), limit: 1, before: Some(jobs[1]), ..Filter::default() }), 6 - first),
        ] {
            assert_eq!(jobs.apply(operation).count().await.unwrap(), expected as u64, "{state:?}");
        }
        let outcome = chosen.before(jobs[4]).limit(2).apply(operation).await.unwrap();
        assert_eq!(outcome.done + outcome.cancelling, 2, "{state:?}");
        for (place, job) in jobs.iter().enumerate() {
            let is_changed = (first..first + 2).contains(&place);
            let (changed, expected) = match state {
                JobState::Dead => (queue.job(*job).why().await.unwrap().is_absent(), is_changed),
                JobState::Running => {
                    (db.count(&format!("select count(*) from queue.lease where {job} = any (cancelling)")).await == 1, is_changed)
                }
                _ => (queue.job(*job).state().await.unwrap() == JobState::Cancelled, is_changed),
            };
            assert_eq!(changed, expected, "{state:?}, job {place}");
        }
        db.finish().await;
    }
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
