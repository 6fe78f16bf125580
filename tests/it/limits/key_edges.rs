//! Limits by key, one function at a time: which bound of a key ends, and what is said of the room of each key.

use std::time::Duration;

use sqlx::{Connection as _, Executor as _, FromRow, PgConnection};
use tests::{
    lines,
    protocol::{Said, settle, settle_leases},
};

use super::{
    key_claims::{claim, claim_from, counts, fill},
    statements::{connect, run, with},
};

#[tokio::test]
async fn a_bound_of_a_key_ends_under_one_limit_and_for_one_key() {
    let (db, mut on, _) = with(0).await;
    run(&mut on, "select queue.set_limit_key(n, k, 3) from unnest('{one,two}'::text[]) n, unnest('{a,b}'::text[]) k").await;
    run(&mut on, "select queue.set_limit_key('one', 'a', null)").await;
    let left: Vec<(String, String)> =
        sqlx::query_as("select name, key from queue.key_bound order by 1, 2").fetch_all(&mut on).await.unwrap();
    assert_eq!(left, [("one", "b"), ("two", "a"), ("two", "b")].map(|(name, key)| (name.to_owned(), key.to_owned())));
    db.finish().await;
}

/// The room of a key under a limit.
#[derive(Debug, FromRow)]
struct Room {
    free: Option<i64>,
    wait_ms: Option<f64>,
}

async fn room(on: &mut PgConnection, limit: &str, key: &str) -> Room {
    let room = "select free, wait_ms from queue.line_room(array[queue.hash($1)], null, array[queue.line_id('z'), queue.line_id($2)])
        where line = queue.line_id($2)";
    sqlx::query_as(room).bind(limit).bind(key).fetch_one(on).await.unwrap()
}

/// A key waits for so many seconds, as far as a slow machine can tell.
fn waits(room: &Room, seconds: f64) -> bool {
    let least = (seconds - 8.0) * 1000.0;
    room.free.is_some_and(|free| free <= 0) && room.wait_ms.is_some_and(|ms| ms > least && ms <= seconds * 1000.0)
}

#[tokio::test]
async fn what_began_of_a_key_leaves_its_windows_by_and_by_and_is_that_of_no_other() {
    let (db, mut on, _) = with(0).await;
    run(&mut on, "select queue.set_limit('rated', null, 6, '60 s', 2, keyed => true)").await;
    // By key: how many began how many seconds ago.
    let began = "insert into queue.rate (gate, line, at_ms, n, total)
        select queue.hash('rated'), queue.line_id(b.key), queue.clock_ms() - b.ago * 1000, b.n, sum(b.n) over (partition by b.key order by b.ago desc)
        from (values ('short', 30, 3), ('short', 5, 2), ('long', 50, 1), ('long', 30, 7), ('some', 40, 1), ('some', 3, 1)) b (key, ago, n)";
    run(&mut on, began).await;
    let short = room(&mut on, "rated", "short").await;
    assert!(waits(&short, 15.0), "two began within a third of a minute: {short:?}");
    // As after a rate was lowered: enough must have left the window, not any.
    let long = room(&mut on, "rated", "long").await;
    assert!(waits(&long, 30.0), "eight began within a minute: {long:?}");
    let some = room(&mut on, "rated", "some").await;
    assert!(some.free == Some(1) && some.wait_ms.is_none(), "one of two began lately: {some:?}");
    let none = room(&mut on, "rated", "none").await;
    assert!(none.free == Some(2) && none.wait_ms.is_none(), "{none:?}");
    db.finish().await;
}

#[tokio::test]
async fn what_a_key_holds_is_held_of_no_other_and_its_own_bound_goes_first() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "a", "b"]).await;
    run(&mut on, "select queue.set_limit('type:t', 2, keyed => true), queue.set_limit_key('type:t', 'c', 7)").await;
    assert_eq!(claim(&mut on, worker, &["type:t"], 9, &[]).await.unwrap().of, counts([("a", 2), ("b", 1)]));
    for (key, free) in [("a", 0), ("b", 1), ("c", 7), ("d", 2)] {
        assert_eq!(room(&mut on, "type:t", key).await.free, Some(free), "of {key}");
    }
    run(&mut on, "select queue.set_limit_key('type:t', 'a', 3)").await;
    assert_eq!(room(&mut on, "type:t", "a").await.free, Some(1));
    db.finish().await;
}

/// Lanes of the type `t` in these queues, from their places on, as they stand in lines or as those of suspects; how many of each, and in all.
struct Lanes<'l>(&'l [(&'l str, bool, i64, i32)], i32);

/// Of the jobs that would be claimed of these lanes under the limit of their type, the numbers in the order of all, by turns of two.
async fn chosen(on: &mut PgConnection, all: &[i64], Lanes(lanes, most): Lanes<'_>) -> Vec<usize> {
    let choose =
        "select array(select r.id from unnest(c.ats) with ordinality u (at, nth) join queue.ready r on r.ctid = u.at order by u.nth)
        from queue.choose_under_keys(
          array(select queue.lane_id(q, 't', 100, not l) from unnest($1::text[], $2::bool[]) with ordinality u (q, l, nth) order by nth),
          $3, $2, $4, 2, $5, array[queue.hash('type:t')], array[null::bigint]) c";
    let ids: Vec<i64> = sqlx::query_scalar(choose)
        .bind(lanes.iter().map(|(queue, ..)| *queue).collect::<Vec<_>>())
        .bind(lanes.iter().map(|(_, in_lines, ..)| *in_lines).collect::<Vec<_>>())
        .bind(lanes.iter().map(|(_, _, begin, _)| *begin).collect::<Vec<_>>())
        .bind(lanes.iter().map(|(.., most)| *most).collect::<Vec<_>>())
        .bind(most)
        .fetch_one(on)
        .await
        .unwrap();
    ids.into_iter().map(|id| all.iter().position(|other| *other == id).unwrap()).collect()
}

async fn ready(on: &mut PgConnection) -> Vec<i64> {
    sqlx::query_scalar("select id from queue.ready order by id").fetch_all(on).await.unwrap()
}

#[tokio::test]
async fn of_a_key_with_much_room_the_first_are_taken_past_those_that_others_hold() {
    let (db, mut on, _) = with(0).await;
    fill(&mut on, "default", ["a"; 12]).await;
    run(&mut on, "select queue.set_limit('type:t', 8, keyed => true)").await;
    let all = ready(&mut on).await;
    let lanes = [("default", true, i64::MIN, 12)];
    assert_eq!(chosen(&mut on, &all, Lanes(&lanes, 12)).await, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(chosen(&mut on, &all, Lanes(&lanes, 2)).await, [0, 1]);
    assert_eq!(chosen(&mut on, &all, Lanes(&lanes, 5)).await, [0, 1, 2, 3, 4]);
    let mut other = connect(&db.url).await;
    let mut open = other.begin().await.unwrap();
    sqlx::query("select from queue.ready where id = any ($1) for update").bind([all[0], all[5]]).execute(&mut *open).await.unwrap();
    assert_eq!(chosen(&mut on, &all, Lanes(&lanes, 12)).await, [1, 2, 3, 4, 6, 7, 8, 9]);
    open.rollback().await.unwrap();
    db.finish().await;
}

/// The place of a suspect is not its job's number.
const SUSPECTS: &str = "select queue.meet_lane(q, 't', 100, true) from unnest('{default,other}'::text[]) q;
    update queue.ready r set lane = queue.lane_id(q, 't', 100, true), line = null, crashes = 1, seq = 1000 - n.nth
    from unnest('{default,other}'::text[]) q, (select id, row_number() over (order by id) as nth from queue.ready) n
    where r.lane = queue.twin_of(queue.lane_id(q, 't', 100, false)) and n.id = r.id";

#[tokio::test]
async fn of_suspects_of_each_key_the_first_are_taken_in_their_order_of_their_lane_and_from_its_floor_on() {
    let (db, mut on, _) = with(0).await;
    fill(&mut on, "default", ["a", "a", "b", "b", "c", "c"]).await;
    fill(&mut on, "other", ["d"; 3]).await;
    on.execute(SUSPECTS).await.unwrap();
    fill(&mut on, "default", ["e"]).await;
    run(&mut on, "select queue.set_limit('type:t', 1, keyed => true)").await;
    let all = ready(&mut on).await;
    // From the last one on, for so they stand.
    let suspects = |begin| [("default", false, begin, 9)];
    assert_eq!(chosen(&mut on, &all, Lanes(&suspects(0), 9)).await, [5, 3, 1]);
    assert_eq!(chosen(&mut on, &all, Lanes(&suspects(0), 2)).await, [5, 3]);
    assert_eq!(chosen(&mut on, &all, Lanes(&suspects(995), 9)).await, [4, 3, 1], "from a floor on");
    let mut other = connect(&db.url).await;
    let mut open = other.begin().await.unwrap();
    sqlx::query("select from queue.ready where id = $1 for update").bind(all[5]).execute(&mut *open).await.unwrap();
    assert_eq!(chosen(&mut on, &all, Lanes(&suspects(0), 9)).await, [3, 1], "past what others hold");
    open.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn of_several_lanes_no_more_of_each_is_taken_than_it_says_in_their_order() {
    let (db, mut on, _) = with(0).await;
    fill(&mut on, "default", ["a", "a", "a", "b"]).await;
    fill(&mut on, "other", ["c", "c"]).await;
    on.execute(SUSPECTS).await.unwrap();
    fill(&mut on, "default", ["d", "d", "d"]).await;
    run(&mut on, "select queue.set_limit('type:t', 9, keyed => true)").await;
    let all = ready(&mut on).await;
    let lanes = [("other", false, 0, 1), ("default", true, i64::MIN, 2), ("default", false, 0, 3)];
    assert_eq!(chosen(&mut on, &all, Lanes(&lanes, 9)).await, [5, 6, 7, 3, 2, 1]);
    assert_eq!(chosen(&mut on, &all, Lanes(&lanes, 4)).await, [5, 6, 7, 3]);
    db.finish().await;
}

/// Claimed before there was any limit, with others that the limit of the queue does not cover.
#[tokio::test]
async fn a_lease_holds_no_more_under_a_limit_that_is_not_by_key_than_it_has_of_what_that_covers() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "other", ["a", "b"]).await;
    fill(&mut on, "default", ["a", "b", "c"]).await;
    let lease = lines::claim_lines(&mut on, worker, i64::MIN, 9).await.unwrap().lease;
    fill(&mut on, "other", ["a"; 5]).await;
    run(&mut on, "select queue.set_limit('type:t', 9, keyed => true), queue.set_limit('queue:other', 3)").await;
    run(&mut on, "update queue.worker set paused_seen = 9223372036854775807").await;
    let (other, limits) = ((worker, "other", i64::MIN), &["queue:other", "type:t"]);
    let ended = "select j.id from queue.job j where j.id = any ($1) and exists (select from queue.lane l where l.lane = j.lane and l.queue = 'default')";
    let ended: i64 = sqlx::query_scalar(ended).bind(lease.ids()).fetch_one(&mut on).await.unwrap();
    let none = claim_from(&mut on, other, limits, 0, &[lease.token]).await.unwrap();
    assert_eq!((lease.jobs.len(), none.ids.len()), (5, 0), "it counts in what runs");
    let job = *lease.jobs.iter().find(|job| job.id.0 == ended).unwrap();
    assert_eq!(settle(&mut on, &[Said { token: lease.token, job, verdict: "complete" }]).await.unwrap(), []);
    let next = claim_from(&mut on, other, limits, 9, &[lease.token]).await.unwrap();
    assert_eq!((next.of, next.closed.as_deref()), (counts([("a", 1)]), Some("full")), "two of its four are of that queue");
    db.finish().await;
}

#[tokio::test]
async fn who_needs_longer_than_a_rate_leaves_may_begin_later_and_is_counted_later() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "b"]).await;
    run(&mut on, "select queue.set_limit('type:t', null, 6, '1 h', keyed => true)").await;
    for (slack, within) in [(0, 250), (20_000, 20_000)] {
        let claim = "select c.at_ms, c.within_ms from queue.claim_keyed(gen_random_uuid(), $1, array[queue.hash('type:t')],
            array[queue.lane_id('default', 't', 100, false)], array[0], array[true], array[1], 1, '{}', $2, null) c where c.at_ms is not null";
        let (at, found): (i64, i64) = sqlx::query_as(claim).bind(worker).bind(slack).fetch_one(&mut on).await.unwrap();
        let counted: i64 = sqlx::query_scalar("select max(at_ms) from queue.rate").fetch_one(&mut on).await.unwrap();
        assert!(found == within && counted >= at + within, "{found} ms after {at}, counted at {counted}");
    }
    db.finish().await;
}

#[tokio::test]
async fn of_a_key_that_stands_in_lines_of_two_lanes_a_claim_takes_no_more_than_in_one() {
    let (db, mut on, _) = with(0).await;
    fill(&mut on, "default", ["a"; 4]).await;
    fill(&mut on, "other", ["a"; 4]).await;
    let all = ready(&mut on).await;
    for limit in ["select queue.set_limit('type:t', 5, keyed => true)", "select queue.set_limit('type:t', null, 5, '1 h', keyed => true)"] {
        run(&mut on, limit).await;
        let lanes = [("default", true, i64::MIN, 9), ("other", true, i64::MIN, 9)];
        assert_eq!(chosen(&mut on, &all, Lanes(&lanes, 9)).await, [0, 1, 2, 3, 4], "of {limit}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_lease_lists_its_jobs_by_id_however_their_rows_lie() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "b", "c", "a", "b", "c", "a", "b", "c"]).await;
    let turned = "create temporary table turned as select * from queue.ready; delete from queue.ready;
      insert into queue.ready select * from turned order by seq desc; drop table turned";
    on.execute(turned).await.unwrap();
    run(&mut on, "select queue.set_limit('type:t', 9, keyed => true)").await;
    assert_eq!(claim(&mut on, worker, &["type:t"], 9, &[]).await.unwrap().ids.len(), 9);
    let listed: Vec<i64> = sqlx::query_scalar("select ids from queue.lease").fetch_one(&mut on).await.unwrap();
    assert!(listed.is_sorted(), "{listed:?}");
    db.finish().await;
}

#[tokio::test]
async fn who_found_no_permit_of_a_limit_that_is_not_by_key_is_told_of_one() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "b"]).await;
    run(&mut on, "select queue.set_limit('type:t', 9, keyed => true), queue.set_limit('queue:default', 1)").await;
    let limits = &["queue:default", "type:t"];
    let first = claim(&mut on, worker, limits, 1, &[]).await.unwrap();
    let none = claim(&mut on, worker, limits, 1, &[]).await.unwrap();
    assert_eq!((first.ids.len(), none.ids.len(), none.closed.as_deref()), (1, 0, Some("full")));
    let token: uuid::Uuid = sqlx::query_scalar("select token from queue.lease").fetch_one(&mut on).await.unwrap();
    settle_leases(&mut on, &[token]).await.unwrap();
    let mut listener = db.listen("wake").await;
    claim(&mut on, worker, limits, 0, &[token]).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(10), listener.recv()).await.expect("somebody is told").unwrap();
    assert!(told.payload().starts_with("!room"), "{}", told.payload());
    db.finish().await;
}
