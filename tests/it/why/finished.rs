//! Tests the diagnosis of a job that has finished or does not exist.

use queue_core::{Job as _, JobId, JobRef, JobState, Queue, Store, migrate, operate::CauseKind};
use tests::{Act, Do};

use super::{TestDb, ask, completes, connect, cure, fact, first, kinds, ok};

#[tokio::test]
async fn each_end_is_shown_with_its_attempts_and_requeued_by_the_command() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        let job = ok(&db).await;
        completes(&db, job).await;
        let cause = first(&db, job, CauseKind::Completed).await;
        assert!(cause.message.starts_with("it completed at 2") && cause.fix.is_none(), "{}", cause.message);
        let late = Do { act: Act::FailUntil(3) }.enqueue(&db.pool).await.unwrap().id();
        completes(&db, late).await;
        let cause = first(&db, late, CauseKind::Completed).await;
        assert_eq!((cause.facts["failures"].as_array().unwrap().len(), fact(&cause, "attempts")), (2, &3.into()), "{cause:?}");
        let dead = Do { act: Act::FirstThen(Box::new(Act::Terminal("no way\nout".into())), Box::new(Act::Ok(String::new()))) };
        let dead = dead.enqueue(&db.pool).await.unwrap().id();
        db.until(dead, JobState::Dead).await;
        let cause = first(&db, dead, CauseKind::Dead).await;
        assert_eq!((fact(&cause, "error"), &cause.facts["failures"][0]["attempt"]), (&"no way\nout".into(), &1.into()));
        assert!(cause.message.contains("after attempt 1: no way out"), "{}", cause.message);
        assert_eq!(cause.facts["failures"].as_array().unwrap().len(), 1, "its own");
        cure(&db, &cause).await;
        completes(&db, dead).await;
    })
    .await;
    let cancelled = ok(&db).await;
    JobRef::from_id(cancelled).cancel(&db.pool).await.unwrap();
    let cause = first(&db, cancelled, CauseKind::Cancelled).await;
    assert!(cause.message.contains("before it had started"), "{}", cause.message);
    db.run_while(super::worker(&db), async {
        cure(&db, &cause).await;
        completes(&db, cancelled).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_missing_job_is_shown_with_the_possible_reasons() {
    let db = TestDb::new().await;
    let job = ok(&db).await;
    let message = async |id: i64| first(&db, JobId(id), CauseKind::NoSuchJob).await.message;
    let hour = 3_600_000_i64 << 20;
    assert!(message(7).await.contains("no store generates such an id"));
    assert!(message(-1).await.contains("no store generates such an id"));
    assert!(message(i64::MAX).await.contains("there is no job"));
    assert!(message(job.0 + hour).await.contains("has not generated such an id yet"));
    assert!(message(job.0 - hour).await.contains("deleted after the retention"));
    assert!(message(job.0 + 1).await.contains("rolled back or in another store"));
    let why = ask(&db, JobId(7)).await;
    assert!(why.is_absent() && why.state.is_none() && why.queue.is_none());
    JobRef::from_id(job).cancel(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn in_the_wrong_store_the_others_are_named_and_commands_contain_the_stores_name() {
    let db = TestDb::new().await;
    let store = Store::new("billing").unwrap();
    migrate(&mut connect(&db).await, store).await.unwrap();
    let id: JobId = sqlx::query_scalar("select billing.enqueue('do', '{\"act\": {\"Ok\": \"\"}}')").fetch_one(&db.pool).await.unwrap();
    let cause = first(&db, id, CauseKind::NoSuchJob).await;
    assert_eq!(cause.facts["stores"], serde_json::json!(["billing"]), "{cause:?}");
    assert!(cause.fix.unwrap().ends_with("`--schema`: billing"));
    JobRef::from_id(id).in_store(store).cancel(&db.pool).await.unwrap();
    let why = Queue::new(&db.pool).store(store).job(id).why().await.unwrap();
    assert_eq!(kinds(&why), [CauseKind::Cancelled]);
    assert!(why.first().fix.as_deref().unwrap().ends_with("--schema billing"), "{why:#?}");
    cure(&db, why.first()).await;
    let why = Queue::new(&db.pool).store(store).job(id).why().await.unwrap();
    assert_eq!((why.first().kind, why.state), (CauseKind::NoWorker, Some(JobState::Ready)));
    db.finish().await;
}
