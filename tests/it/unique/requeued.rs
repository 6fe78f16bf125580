//! Tests requeueing a job whose uniqueness key is held by another job.

use queue_core::{
    EnqueueOutcome, Error, Job as _, JobHandle, JobState, Store,
    operate::{Act, Filter, requeue_all},
};
use sqlx::PgConnection;
use tests::{
    Do, TestDb,
    protocol::{claim, settle},
};

use super::say;

async fn enqueue(on: &mut PgConnection, key: &str) -> JobHandle<Do> {
    say("1").enqueue(on).unique(key).await.unwrap()
}

#[tokio::test]
async fn a_job_is_not_requeued_beside_the_one_that_took_its_key_unless_forced() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    for end in ["dead", "complete", "plain", "cancel"] {
        let first = enqueue(&mut on, end).await;
        let lease = claim(&mut on, worker, 1).await.unwrap();
        assert_eq!(settle(&mut on, &lease.all(end)).await.unwrap(), [], "{end}");
        let second = enqueue(&mut on, end).await;
        assert_eq!(second.outcome(), EnqueueOutcome::New, "{end}");

        let before = db.state(first.id()).await;
        let refused = first.requeue(&mut on).await.unwrap_err();
        let Error::KeyTaken { job, holder } = refused else { panic!("{end}: {refused}") };
        assert_eq!((job, holder), (first.id(), second.id()), "{end}");
        assert!(refused.to_string().contains(&second.id().to_string()) && refused.to_string().contains("--force"), "{refused}");
        let swept = requeue_all(&mut on, Store::default(), &Filter::default()).await.unwrap();
        assert_eq!((swept.done, db.state(first.id()).await), (0, before), "{end}: and so does not one of many");

        first.act(&mut on, Act::ForceRequeue).await.unwrap();
        assert_eq!(db.state(first.id()).await, Some(JobState::Ready), "{end}: forced");
        assert_eq!(enqueue(&mut on, end).await.id(), second.id(), "{end}: the other has the key");
        first.cancel(&mut on).await.unwrap();
        second.cancel(&mut on).await.unwrap();

        first.requeue(&mut on).await.unwrap();
        let third = enqueue(&mut on, end).await;
        assert_eq!((third.id(), third.outcome()), (first.id(), EnqueueOutcome::Kept), "{end}: it has its key again");
        first.cancel(&mut on).await.unwrap();
    }
    db.finish().await;
}

#[tokio::test]
async fn of_dead_letters_of_one_key_one_is_requeued() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    for _ in 0..3 {
        enqueue(&mut on, "key").await;
        let lease = claim(&mut on, worker, 1).await.unwrap();
        settle(&mut on, &lease.all("dead")).await.unwrap();
    }
    let other = say("2").enqueue(&mut on).await.unwrap();
    // The value is written directly and is not the hash of any key.
    sqlx::query("update queue.job set system = '{\"unique\": \"2\"}' where id = $1").bind(other.id()).execute(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 1).await.unwrap();
    settle(&mut on, &lease.all("dead")).await.unwrap();
    let swept = requeue_all(&mut on, Store::default(), &Filter::default()).await.unwrap();
    assert_eq!((swept.done, db.state(other.id()).await), (2, Some(JobState::Ready)), "one of the key, and the one without");
    db.finish().await;
}
