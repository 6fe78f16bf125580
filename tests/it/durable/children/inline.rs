//! Children in the test kit: they are not run, and the test says what they come to.

use queue_core::{Verdict, testing};

use super::{Act, Options, tree};

#[tokio::test]
async fn a_parent_waits_for_children_and_is_given_what_the_test_says_of_them() {
    let parts = || tree([Act::Complete, Act::Complete, Act::Complete], Options::default());
    let parked = testing::run(parts()).await;
    assert_eq!(parked.verdict, Verdict::Park(None));
    assert_eq!(parked.waits_for(), ["leaf/0 (join)", "leaf/1 (join)", "leaf/2 (join)"]);
    assert_eq!(parked.journaled(), ["leaf/0", "leaf/1", "leaf/2"]);
    let told = testing::run(parts()).child_completed(("leaf", 0), &9).child_dead(("leaf", 1), "broken").child_cancelled(("leaf", 2)).await;
    assert_eq!(told.output(), ["9", "dead after 1: broken", "cancelled"]);
    let strict = tree([Act::Complete], Options { strict: true, ..Options::default() });
    let dead = testing::run(strict).child_dead(("leaf", 0), "broken").await;
    assert!(dead.is_dead(), "another attempt would be told the same: {:?}", dead.error);
}
