//! Tests operations on one job by its id and store, regardless of its type, as a web server performs them.

use std::time::Duration;

use queue_core::{
    Error, Job as _, JobId, JobRef, JobState, Queue, Store, migrate,
    operate::{Operation, OperationOutcome},
};
use tests::{Act, Do, TestDb};

use super::{connect, enqueue, ok};

#[tokio::test]
async fn a_job_of_an_unknown_type_is_queried_and_changed_in_its_own_store() {
    let db = TestDb::new().await;
    let store = Store::new("billing").unwrap();
    migrate(&mut connect(&db).await, store).await.unwrap();
    let id: JobId = sqlx::query_scalar("select billing.enqueue('nobody_knows', '7')").fetch_one(&db.pool).await.unwrap();
    let job = JobRef::from_id(id).in_store(store);
    assert_eq!(job.state(&db.pool).await.unwrap(), JobState::Ready);
    job.snooze(&db.pool, Duration::from_hours(1)).await.unwrap();
    job.set_priority(&db.pool, 7).await.unwrap();
    let found = job.find(&db.pool).await.unwrap();
    assert_eq!((found.state, found.priority, found.job_type.as_str()), (JobState::Scheduled, 7, "nobody_knows"));
    job.run_now(&db.pool).await.unwrap();
    assert_eq!(job.cancel(&db.pool).await.unwrap(), OperationOutcome::Done);
    assert_eq!(job.state(&db.pool).await.unwrap(), JobState::Cancelled);
    job.requeue(&db.pool).await.unwrap();
    assert_eq!(Queue::new(&db.pool).store(store).counts().await.unwrap().len(), 1);
    assert_eq!(Queue::new(&db.pool).store(store).jobs().cancel().await.unwrap().done, 1);

    // The default store has no job with this id.
    let elsewhere = JobRef::from_id(id);
    let error = elsewhere.cancel(&db.pool).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { job } if job == id), "{error}");
    for error in [
        elsewhere.state(&db.pool).await.unwrap_err(),
        elsewhere.status(&db.pool).await.map(drop).unwrap_err(),
        elsewhere.find(&db.pool).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotFound { job } if job == id), "{error}");
    }
    let nowhere = JobRef::from_id(id).in_store(Store::new("nowhere").unwrap());
    for error in [nowhere.cancel(&db.pool).await.map(drop).unwrap_err(), nowhere.find(&db.pool).await.map(drop).unwrap_err()] {
        assert!(matches!(error, Error::NotMigrated { .. }), "{error}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_handle_operates_in_the_store_that_its_job_was_enqueued_in() {
    let db = TestDb::new().await;
    let store = Store::new("billing").unwrap();
    migrate(&mut connect(&db).await, store).await.unwrap();
    let handle = Do { act: ok() }.enqueue(&db.pool).store(store).await.unwrap();
    assert_eq!(handle.state(&db.pool).await.unwrap(), JobState::Ready);
    assert_eq!(handle.cancel(&db.pool).await.unwrap(), OperationOutcome::Done);
    assert_eq!(handle.find(&db.pool).await.unwrap().state, JobState::Cancelled);
    db.finish().await;
}

#[tokio::test]
async fn the_status_of_any_job_has_its_output_or_its_error() {
    let db = TestDb::new().await;
    let (done, dead) = (enqueue(&db, Act::Ok("of it".into())).await, enqueue(&db, Act::Terminal("no way".into())).await);
    db.run_until_idle(db.worker()).await;
    let status = JobRef::from_id(done).status(&db.pool).await.unwrap();
    assert_eq!((status.state, status.attempts), (JobState::Completed, 1));
    assert_eq!(status.output.unwrap().get(), r#""of it""#);
    let status = JobRef::from_id(dead).status(&db.pool).await.unwrap();
    assert_eq!((status.state, status.error.as_deref(), status.output.is_none()), (JobState::Dead, Some("no way"), true));
    db.finish().await;
}

#[tokio::test]
async fn a_refusal_names_job_state_and_operation_and_shows_no_detail() {
    let db = TestDb::new().await;
    let job = enqueue(&db, ok()).await;
    let error = JobRef::from_id(job).requeue(&mut connect(&db).await).await.unwrap_err();
    let expected = format!("job {job} is ready; only a job that is dead, completed, cancelled or expired can be requeued");
    assert_eq!(error.to_string(), expected);
    let Error::WrongState { state: JobState::Ready, wanted, done, .. } = error else { panic!("{error}") };
    assert_eq!(
        (wanted.as_slice(), done.as_str()),
        (&[JobState::Dead, JobState::Completed, JobState::Cancelled, JobState::Expired][..], "requeued")
    );
    for act in [
        Operation::Snooze(Duration::ZERO),
        Operation::RunNow,
        Operation::Priority(1),
        Operation::Discard,
        Operation::Requeue,
        Operation::Cancel,
    ] {
        let error = JobRef::from_id(JobId(7)).apply(&db.pool, act).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { job: JobId(7) }) && !error.to_string().contains('{'), "{act:?}: {error}");
    }
    // A lock timeout has the same SQLSTATE as the error for a locked job, but must not be reported as that error.
    let mut tx = db.pool.begin().await.unwrap();
    sqlx::query("lock table queue.dead in access exclusive mode").execute(&mut *tx).await.unwrap();
    let mut on = connect(&db).await;
    sqlx::query("set lock_timeout = '50ms'").execute(&mut on).await.unwrap();
    let error = JobRef::from_id(job).discard(&mut on).await.unwrap_err();
    assert!(matches!(error, Error::Database(_)), "{error}");
    tx.rollback().await.unwrap();
    db.finish().await;
}
