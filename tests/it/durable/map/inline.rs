//! Tests maps in the test kit: the mapped jobs do not run, and the test sets their outcomes.

use queue_core::{options::Verdict, testing};

use super::{FamilyReport, Parent};

#[tokio::test]
async fn a_map_ends_with_the_outcomes_that_the_test_sets_and_otherwise_waits() {
    let mapper = || Parent { by_map: true, count: 3, ..Parent::default() };
    let db = super::db().await;
    let parked = testing::run(mapper()).pool(&db.pool).await;
    assert_eq!((parked.verdict, parked.waits_for()), (Verdict::Park(None), &["leaf (join)".to_owned()][..]));
    assert_eq!(parked.journaled(), ["leaf"]);
    let ran = testing::run(mapper()).pool(&db.pool).map_ended("leaf", [Ok(5), Err("broken".to_owned()), Ok(7)]).await;
    let first = ["5", "dead after 1: broken", "7"].map(str::to_owned).to_vec();
    assert_eq!(ran.output(), FamilyReport { counts: [3, 2, 1, 0], first, sum: 12 });
    let other = testing::run(mapper()).pool(&db.pool).map_ended("leaf", [Ok(5)]).await;
    assert!(other.error.as_ref().is_some_and(|error| error.contains("sets the results of 1 jobs of the map")), "{:?}", other.error);
    let empty = testing::run(Parent { by_map: true, ..Parent::default() }).pool(&db.pool).await;
    assert_eq!(empty.output().counts, [0; 4]);
    db.finish().await;
}
