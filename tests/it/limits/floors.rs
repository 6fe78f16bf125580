//! Tests the floor of a limit, which is the first permit that a claim reads. While a snapshot is held, released permits leave dead index
//! entries. Claims must not read these entries.

use sqlx::{Connection as _, PgConnection};
use tests::{Sql as _, protocol::settle_leases};
use uuid::Uuid;

use super::claim_steps::{ClaimArguments, LimitedClaim, ask, connect, counts, fill, with};

/// Claims one job under the limit of its type. The claim reads the permits starting at `floors`.
async fn claim(on: &mut PgConnection, worker: Uuid, freed: &[Uuid], floors: Option<&[i64]>) -> LimitedClaim {
    let lanes = &[("default", false, 0, 1)];
    ask(on, worker, ClaimArguments { by_key: false, limits: &["type:t"], lanes, most: 1, freed, slack: 0, floors }).await.unwrap()
}

/// Claims up to `most` jobs under the per-key limit of their type.
async fn claim_by_key(on: &mut PgConnection, worker: Uuid, most: i32, freed: &[Uuid], floors: Option<&[i64]>) -> LimitedClaim {
    let lanes = &[("default", true, 0, most)];
    ask(on, worker, ClaimArguments { by_key: true, limits: &["type:t"], lanes, most, freed, slack: 0, floors }).await.unwrap()
}

/// Returns the number of index entries that a claim reads to count the free permits.
async fn walked(on: &mut PgConnection, floors: Option<&[i64]>) -> i64 {
    let entries = "select pg_stat_get_xact_tuples_returned('queue.permit_pkey'::regclass)";
    let mut open = on.begin().await.unwrap();
    let before: i64 = open.one(entries).await;
    let room = "select count(r.free) from queue.free_permits(array[queue.hash('type:t')], $1) r";
    let limits: i64 = sqlx::query_scalar(room).bind(floors).fetch_one(&mut *open).await.unwrap();
    let after: i64 = open.one(entries).await;
    open.rollback().await.unwrap();
    assert_eq!(limits, 1);
    after - before
}

#[tokio::test]
async fn a_claim_from_a_floor_sees_all_permits_in_use() {
    let (db, mut on, worker) = with(9).await;
    on.run("select queue.set_limit('type:t', 3)").await;
    let first = claim(&mut on, worker, &[], None).await;
    let second = claim(&mut on, worker, &[], first.floors.as_deref()).await;
    assert!(first.floors.is_some() && first.floors <= second.floors, "the first is held: {first:?}, {second:?}");
    settle_leases(&mut on, &[first.token]).await.unwrap();
    let third = claim(&mut on, worker, &[first.token], second.floors.as_deref()).await;
    assert!(third.floors > second.floors, "only released permits are below it");
    // A claim may start at the current floor, at an earlier floor, or without a floor.
    for floors in [&third.floors, &first.floors, &None] {
        let one = claim(&mut on, worker, &[], floors.as_deref()).await;
        let none = claim(&mut on, worker, &[], floors.as_deref()).await;
        assert_eq!((one.ids.len(), none.ids.len(), none.closed.as_deref()), (1, 0, Some("full")), "{floors:?}");
        assert_eq!(none.floors, None, "it took nothing, so nothing of it comes to the disk");
        settle_leases(&mut on, &[one.token]).await.unwrap();
        on.run("select queue.read_permits(array[queue.hash('type:t')], null, null)").await;
    }
    db.finish().await;
}

#[tokio::test]
async fn a_claim_does_not_read_dead_permits_while_a_snapshot_is_held() {
    const CLAIMS: i64 = 300;
    let (db, mut on, worker) = with(CLAIMS as i32).await;
    on.run("select queue.set_limit('type:t', 3)").await;
    let mut holder = connect(&db.url).await;
    holder.run("begin isolation level repeatable read; select from queue.job limit 1").await;
    let (mut freed, mut floors) = (Vec::new(), None);
    for _ in 0..CLAIMS {
        let claimed = claim(&mut on, worker, &freed, floors.as_deref()).await;
        assert_eq!(claimed.ids.len(), 1);
        settle_leases(&mut on, &[claimed.token]).await.unwrap();
        (freed, floors) = (vec![claimed.token], claimed.floors);
    }
    let (all, few) = (walked(&mut on, None).await, walked(&mut on, floors.as_deref()).await);
    assert!(all >= CLAIMS && few <= 10, "{all} and {few}");
    drop(holder);
    db.finish().await;
}

#[tokio::test]
async fn a_permit_held_for_long_is_moved_to_a_later_place_and_still_counts() {
    const CLAIMS: i32 = 3000;
    let (db, mut on, worker) = with(CLAIMS).await;
    on.run("select queue.set_limit('type:t', 2)").await;
    let long = claim(&mut on, worker, &[], None).await;
    on.run("select setval('queue.permit_seq', 100000)").await;
    let (mut freed, mut floors, mut moved) = (Vec::new(), long.floors.clone(), false);
    for _ in 1..CLAIMS {
        let claimed = claim(&mut on, worker, &freed, floors.as_deref()).await;
        assert_eq!(claimed.ids.len(), 1);
        let none = claim(&mut on, worker, &[], claimed.floors.as_deref()).await;
        assert_eq!(none.ids.len(), 0, "the one that is held for long counts: {floors:?} {claimed:?}");
        settle_leases(&mut on, &[claimed.token]).await.unwrap();
        (freed, floors) = (vec![claimed.token], claimed.floors);
        moved = floors.as_deref().is_some_and(|floors| floors[0] > 100_000);
        if moved {
            break;
        }
    }
    assert!(moved, "about one claim in a hundred sees to it: {floors:?}");
    assert_eq!(db.count("select count(*) from queue.lease").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_floor_is_below_all_permits_of_several_leases() {
    for (by_key, limit, closed) in [(false, 3, "full"), (true, 1, "exhausted")] {
        let (db, mut on, worker) = with(4).await;
        fill(&mut on, "default", ["a", "b", "c", "a", "b", "c"]).await;
        on.run(&format!("select queue.set_limit('type:t', {limit}, keyed => {by_key})")).await;
        let claims = async |on: &mut PgConnection, most, floors: Option<&[i64]>| {
            if by_key { claim_by_key(on, worker, most, &[], floors).await } else { claim(on, worker, &[], floors).await }
        };
        let mut floors = None;
        for _ in 0..3 {
            let claimed = claims(&mut on, 1, floors.as_deref()).await;
            assert_eq!(claimed.ids.len(), 1);
            floors = claimed.floors;
        }
        let none = claims(&mut on, 9, floors.as_deref()).await;
        assert_eq!((none.ids.len(), none.closed.as_deref()), (0, Some(closed)), "by key: {by_key}");
        db.finish().await;
    }
}

#[tokio::test]
async fn by_key_all_permits_are_above_the_floor_including_those_from_before_the_limit() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["k"]).await;
    tests::fair_queues::move_to_fair_lanes(&mut on, 100).await.unwrap();
    let free = tests::fair_queues::claim_fair(&mut on, worker, 0, 1).await.unwrap().lease;
    fill(&mut on, "default", ["k", "o", "o"]).await;
    tests::fair_queues::move_to_fair_lanes(&mut on, 100).await.unwrap();
    on.run("select queue.set_limit('type:t', 1, keyed => true)").await;
    let first = claim_by_key(&mut on, worker, 3, &[], None).await;
    assert_eq!((free.ids().len(), &first.of), (1, &counts([("o", 1)])), "one of k runs already");
    let mut floors = first.floors;
    for _ in 0..2 {
        let none = claim_by_key(&mut on, worker, 3, &[], floors.as_deref()).await;
        assert_eq!((none.ids.len(), none.floors), (0, None), "one of each runs, and a claim without jobs returns no floor");
    }
    settle_leases(&mut on, &[first.token]).await.unwrap();
    let second = claim_by_key(&mut on, worker, 3, &[first.token], floors.as_deref()).await;
    assert_eq!(second.of, counts([("o", 1)]));
    floors = second.floors;
    settle_leases(&mut on, &[free.token]).await.unwrap();
    let third = claim_by_key(&mut on, worker, 3, &[free.token], floors.as_deref()).await;
    assert_eq!(third.of, counts([("k", 1)]), "what was counted in is given back");
    assert!(third.floors > floors, "only released permits are below it");
    db.finish().await;
}
