//! Durable jobs in the test kit: the journal is in memory, or in the test's own transaction, and the test moves time.

use std::time::Duration;

use queue_core::{Job as _, Verdict, testing};

use super::{Part, Plan, db, plan, step};

#[tokio::test]
async fn a_handler_runs_inline_from_where_its_journal_says() {
    let db = db().await;
    let ran = testing::run(plan([step("a"), Part::Many(3)])).pool(&db.pool).await;
    assert_eq!(ran.output(), vec!["a", "3"]);
    assert_eq!((ran.step::<String>("a"), ran.step::<u32>(("many", 2)), ran.step::<u32>("b")), (Some("a".to_owned()), Some(2), None));
    let ran = testing::run(plan([step("a"), Part::Fail("here".into())])).journaled("a", "done before").pool(&db.pool).await;
    assert_eq!((ran.error.as_deref(), ran.journaled()), (Some("here"), vec!["a"]));
    db.finish().await;
}

#[tokio::test]
async fn a_sleep_is_a_snooze_and_one_that_is_over_is_passed() {
    let parts = || plan([Part::Sleep("trial".into(), 3_600_000)]);
    let asleep = testing::run(parts()).await;
    let wait = asleep.snoozed_for().unwrap();
    assert!(wait > Duration::from_mins(59) && wait <= Duration::from_hours(1), "{wait:?}");
    let awake = testing::run(parts()).slept("trial").await;
    assert_eq!(awake.verdict, Verdict::Complete);
}

#[tokio::test]
async fn a_drain_goes_on_when_the_test_moves_time() {
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
