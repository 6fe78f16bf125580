//! Tests child jobs in the test kit: the children do not run, and the test sets their outcomes.

use queue_core::{options::Verdict, testing};

use super::{Act, Parent};

#[tokio::test]
async fn a_parent_waits_for_children_and_gets_the_outcomes_that_the_test_sets() {
    let db = super::db().await;
    let parts = || Parent { count: 3, ..Parent::default() };
    let parked = testing::run(parts()).pool(&db.pool).await;
    assert_eq!(parked.verdict, Verdict::Park(None));
    assert_eq!(parked.waits_for(), ["leaf/0 (join)", "leaf/1 (join)", "leaf/2 (join)"]);
    assert_eq!(parked.journaled(), ["leaf/0", "leaf/1", "leaf/2"]);
    let ran = testing::run(parts())
        .pool(&db.pool)
        .child_completed(("leaf", 0), &9)
        .child_dead(("leaf", 1), "broken")
        .child_cancelled(("leaf", 2))
        .await;
    assert_eq!(ran.output().first, ["9", "dead after 1: broken", "cancelled"]);
    let strict = Parent { acts: vec![Act::Complete], strict: true, ..Parent::default() };
    let dead = testing::run(strict).pool(&db.pool).child_dead(("leaf", 0), "broken").await;
    assert!(dead.is_dead(), "another attempt would get the same: {:?}", dead.error);
    db.finish().await;
}
