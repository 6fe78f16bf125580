//! Tests durable jobs in the test kit: the journal is in memory or in the test's own transaction, and the test advances the time.

use std::time::Duration;
use tests::Sql as _;

use queue_core::{Job as _, operate::SignalOutcome, options::Verdict, testing};

use super::{Part, Plan, db, plan, step};

#[tokio::test]
async fn a_handler_runs_inline_from_its_journaled_position() {
    let db = db().await;
    let ran = testing::run(plan([step("a"), Part::Many(3)])).pool(&db.pool).await;
    assert_eq!(ran.output(), vec!["a", "3"]);
    assert_eq!((ran.step::<String>("a"), ran.step::<u32>(("many", 2)), ran.step::<u32>("b")), (Some("a".to_owned()), Some(2), None));
    let ran = testing::run(plan([step("a"), Part::Fail("here".into())])).journaled("a", "done before").pool(&db.pool).await;
    assert_eq!((ran.error.as_deref(), ran.journaled()), (Some("here"), vec!["a"]));
    db.finish().await;
}

#[tokio::test]
async fn a_sleep_is_a_snooze_and_one_that_has_ended_is_skipped() {
    let parts = || plan([Part::Sleep("trial".into(), 3_600_000)]);
    let asleep = testing::run(parts()).await;
    let wait = asleep.snoozed_for().unwrap();
    assert!(wait > Duration::from_mins(59) && wait <= Duration::from_hours(1), "{wait:?}");
    let awake = testing::run(parts()).slept("trial").await;
    assert_eq!(awake.verdict, Verdict::Complete);
}

#[tokio::test]
async fn a_drain_continues_when_the_test_advances_time() {
    let db = db().await;
    let mut tx = db.pool.begin().await.unwrap();
    let parts = [Part::Many(2), Part::Sleep("trial".into(), 3_600_000), Part::Number("n".into())];
    plan(parts).enqueue(&mut tx).await.unwrap();
    let drained = testing::drain(&mut tx).register::<Plan>().await.unwrap();
    assert_eq!((drained.snoozed(), drained.completed()), (1, 0));
    testing::advance(&mut tx, Duration::from_hours(2)).await.unwrap();
    let drained = testing::drain(&mut tx).register::<Plan>().await.unwrap();
    assert_eq!(drained.completed(), 1, "{:?}", drained.errors());
    assert_eq!(drained.attempts[0].journaled().len(), 4);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_handler_waits_for_signals_receives_sent_ones_and_sees_its_timeout() {
    let parts = || plan([Part::Votes("vote".into(), 2), Part::Within("paid".into(), 3_600_000)]);
    let parked = testing::run(parts()).signal("vote", "first").await;
    assert_eq!((parked.waits_for(), parked.verdict), (&["vote".to_owned()][..], Verdict::Park(None)));
    assert_eq!((parked.step::<String>(("vote", 0)), parked.journaled()), (Some("first".to_owned()), vec!["vote/0"]));
    let parked = testing::run(parts()).signal("vote", "first").signal("vote", "second").await;
    let Verdict::Park(Some(wait)) = parked.verdict else { panic!("{:?}", parked.verdict) };
    assert!(wait > Duration::from_mins(59) && wait <= Duration::from_hours(1), "{wait:?}");
    let late = testing::run(parts()).signal("vote", "first").signal("vote", "second").timed_out("paid").await;
    assert_eq!(late.output(), ["first", "second", "none"]);
    let paid = testing::run(parts()).signal("paid", "yes").journaled(("vote", 0), "a").journaled(("vote", 1), "b").timed_out("paid").await;
    assert_eq!(paid.output(), ["a", "b", "yes"], "a signal that is there comes first");
}

#[tokio::test]
async fn a_drain_receives_signals_of_its_transaction_and_passing_time_ends_waits() {
    let db = db().await;
    let mut tx = db.pool.begin().await.unwrap();
    let parts = || plan([Part::Votes("vote".into(), 2), Part::Within("paid".into(), 3_600_000)]);
    let (one, other) = (parts().enqueue(&mut tx).await.unwrap(), parts().enqueue(&mut tx).await.unwrap());
    for (job, text) in [(one, "first"), (other, "another's"), (one, "second")] {
        assert_eq!(job.signal(&mut tx, "vote", text).await.unwrap(), SignalOutcome::Sent);
    }
    let drained = testing::drain(&mut tx).register::<Plan>().await.unwrap();
    assert_eq!(drained.attempts.iter().map(|attempt| attempt.waits_for()[0].as_str()).collect::<Vec<_>>(), ["paid", "vote"]);
    let mut parked: Vec<(i64, bool)> = Vec::new();
    for job in [one, other] {
        let found = sqlx::query_as("select id, run_at is not null from queue.parked where id = $1").bind(job.id());
        parked.push(found.fetch_one(&mut *tx).await.unwrap());
    }
    assert_eq!(parked, [(one.id().0, true), (other.id().0, false)]);
    assert_eq!(other.signal(&mut tx, "vote", "the last").await.unwrap(), SignalOutcome::Sent);
    let drained = testing::drain(&mut tx).register::<Plan>().await.unwrap();
    assert_eq!(drained.of(other.id()).map(|attempt| attempt.waits_for().len()).collect::<Vec<_>>(), [1], "it waits to be paid");
    let drained = testing::drain(&mut tx).register::<Plan>().advance(Duration::from_hours(2)).await.unwrap();
    assert_eq!(drained.outputs::<Plan>(), [vec!["first", "second", "none"], vec!["another's", "the last", "none"]]);
    assert_eq!(tx.one::<i64>("select count(*) from queue.signal").await, 0);
    tx.rollback().await.unwrap();
    db.finish().await;
}
