//! Tests restarted jobs in the test kit.

use queue_core::{
    Job as _,
    options::{Outcome, Verdict},
    testing,
};

use super::{Act, Round, db, rounds};

#[tokio::test]
async fn an_inline_run_returns_the_payload_of_the_restart() {
    let db = db().await;
    let ran = testing::run(rounds(2, Act::Receive)).signal("go", "now").pool(&db.pool).await;
    assert_eq!(ran.restarted_with::<Round>(), Some(Round { number: 2, ..rounds(2, Act::Receive) }));
    assert_eq!((ran.outcome, ran.verdict, ran.is_completed()), (Outcome::Restarted, Verdict::Restart, false));
    assert!(ran.restarted_with::<super::super::Plan>().is_none(), "it is of another type");
    let ended = testing::run(rounds(1, Act::Beside)).pool(&db.pool).await;
    assert_eq!((ended.restarted_with::<Round>(), ended.output()), (None, vec!["round 1".to_owned()]));
    db.finish().await;
}

#[tokio::test]
async fn a_drain_goes_from_round_to_round() {
    let db = db().await;
    let mut tx = db.pool.begin().await.unwrap();
    let job = rounds(3, Act::Receive).enqueue(&mut tx).await.unwrap();
    for text in ["first", "second"] {
        let _ = job.signal(&mut tx, "go", text).await.unwrap();
    }
    let drained = testing::drain(&mut tx).register::<Round>().pool(&db.pool).await.unwrap();
    assert_eq!((drained.restarted(), drained.parked(), drained.errors().len()), (2, 1, 0));
    let numbers: Vec<_> = drained.attempts.iter().filter_map(testing::Attempt::restarted_with::<Round>).map(|next| next.number).collect();
    assert_eq!(numbers, [2, 3]);
    let _ = job.signal(&mut tx, "go", "third").await.unwrap();
    let drained = testing::drain(&mut tx).register::<Round>().pool(&db.pool).await.unwrap();
    assert_eq!(drained.outputs::<Round>(), [vec!["round 3", "third"]]);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_handler_that_is_interrupted_anywhere_reaches_its_last_round() {
    let db = db().await;
    let pool = db.pool.clone();
    let begin = async || testing::run(rounds(2, Act::FailFirst)).pool(&pool);
    let tried = testing::interrupt_everywhere(begin, async |ran| assert_eq!(ran.output(), ["round 2"])).await.unwrap();
    assert!(tried.interruptions > 4, "{tried:?}");
    db.finish().await;
}
