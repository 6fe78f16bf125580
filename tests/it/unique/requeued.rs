//! Tests uniqueness keys of requeued jobs, and requeueing a job whose uniqueness key is held by another job.

use std::time::Duration;

use queue_core::{EnqueueOutcome, Error, Job as _, JobHandle, JobState, Queue, operate::Operation, options::While};
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
        let swept = Queue::on(&mut on).jobs().requeue().await.unwrap();
        assert_eq!((swept.done, db.state(first.id()).await), (0, before), "{end}: and so does not one of many");

        first.apply(&mut on, Operation::ForceRequeue).await.unwrap();
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
    // The interval of the key ends before the requeue, so both jobs are requeued, and neither takes the key again.
    for _ in 0..2 {
        say("1").enqueue(&mut on).unique("interval").unique_while(While::For(Duration::from_hours(1))).await.unwrap();
        let lease = claim(&mut on, worker, 1).await.unwrap();
        settle(&mut on, &lease.all("dead")).await.unwrap();
        db.run("update queue.unique_key set until = now() - interval '1 s' where held = 'until'").await;
    }
    let other = say("2").enqueue(&mut on).await.unwrap();
    // The uniqueness value `2` is written directly and is not the hash of any key. The job is therefore requeued as a job without a key.
    sqlx::query("update queue.job set system = '{\"unique\": \"2\"}' where id = $1").bind(other.id()).execute(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 1).await.unwrap();
    settle(&mut on, &lease.all("dead")).await.unwrap();
    let swept = Queue::on(&mut on).jobs().requeue().await.unwrap();
    assert_eq!((swept.done, db.state(other.id()).await), (4, Some(JobState::Ready)), "one of the key, two of an interval, one without");
    db.finish().await;
}

#[tokio::test]
async fn a_requeued_job_holds_its_key_for_the_period_of_its_enqueue() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    let periods = [(While::Live, [true, true]), (While::Queued, [true, false]), (While::Kept, [true, true])];
    for (held, [holds_waiting, holds_running]) in periods.into_iter().chain([(While::For(Duration::from_hours(1)), [false, false])]) {
        // Changes to the key's row between the end of the job and its requeue.
        for meanwhile in ["nothing", "deleted", "taken by a live job", "taken for an interval"] {
            let case = format!("{held:?}, {meanwhile}");
            let again = async |on: &mut PgConnection, period| say("1").enqueue(on).unique(&case).unique_while(period).await.unwrap();
            let first = again(&mut on, held).await;
            let lease = claim(&mut on, worker, 1).await.unwrap();
            settle(&mut on, &lease.all("dead")).await.unwrap();
            // The row is written directly, because another job cannot take a key that is held with `While::Kept`.
            let change = match meanwhile {
                "nothing" if matches!(held, While::For(_)) => "update queue.unique_key set until = now() - interval '1 s'",
                "nothing" => "select",
                "deleted" => "delete from queue.unique_key",
                "taken by a live job" => "update queue.unique_key set id = 0, held = 'live', until = null",
                _ => "update queue.unique_key set id = 0, held = 'until', until = now() - interval '1 s'",
            };
            db.run(change).await;
            first.requeue(&mut on).await.unwrap();

            let outcome = if holds_waiting { EnqueueOutcome::Kept } else { EnqueueOutcome::New };
            let waiting = again(&mut on, held).await;
            assert_eq!(waiting.outcome(), outcome, "{case}: it waits");
            let lease = claim(&mut on, worker, 2).await.unwrap();
            if holds_waiting {
                let outcome = if holds_running { EnqueueOutcome::Kept } else { EnqueueOutcome::New };
                assert_eq!(again(&mut on, held).await.outcome(), outcome, "{case}: it runs");
            }
            settle(&mut on, &lease.all("complete")).await.unwrap();
            let clear = "with ready as (delete from queue.ready returning id), keys as (delete from queue.unique_key)
                delete from queue.job where id in (select id from ready)";
            db.run(clear).await;
        }
    }
    db.finish().await;
}
