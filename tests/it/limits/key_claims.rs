//! Tests claims under per-key limits on separate connections: the jobs and keys that the claims take or skip, and the cost.

use std::collections::BTreeMap;

use sqlx::Connection as _;
use tests::{
    Sql as _, TestDb, next_payload,
    protocol::{register, settle_leases, silence},
};
use uuid::Uuid;

use super::{
    claim_steps::{
        ClaimArguments, LaneOf,
        Step::{Count, Ends, Fill, MoveToFairLanes, Run, Takes, TakesByKey},
        ask, claim_from, claim_keyed as claim, connect, counts, fill, knows, play, with,
    },
    key_costs::buffers,
};

/// Returns the number of permits in use. Checks that each permit row lists one job and one fair key (`fair_ids`) per permit.
async fn held(db: &TestDb) -> i64 {
    assert_eq!(db.count("select count(*) from queue.permit where n <> cardinality(ids) or n <> cardinality(fair_ids)").await, 0);
    super::claim_steps::held(db).await
}

#[tokio::test]
async fn of_each_key_a_claim_takes_at_most_the_free_permits_and_a_waiting_one_sees_the_first() {
    let (db, mut one, worker) = with(0).await;
    let mut two = connect(&db.url).await;
    one.run("select queue.set_limit('type:t', 3, keyed => true)").await;
    let limits = &["type:t"];
    assert!(claim(&mut one, worker, limits, 4, &[]).await.unwrap().ids.is_empty(), "there is nothing; the limit is in force now");
    fill(&mut one, "default", ["a"; 6].into_iter().chain(["b"; 6]).chain(["c"; 2])).await;
    let mut open = one.begin().await.unwrap();
    let first = claim(&mut open, worker, limits, 4, &[]).await.unwrap();
    assert_eq!((first.ids.len(), first.closed.as_deref()), (4, None));
    let error = claim(&mut two, worker, limits, 4, &[]).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("55P03"), "it waits for the first one");
    open.commit().await.unwrap();
    let second = claim(&mut two, worker, limits, 20, &[]).await.unwrap();
    let mut all = first.of.clone();
    for (key, count) in &second.of {
        *all.entry(key.clone()).or_default() += count;
    }
    assert_eq!(all, counts([("a", 3), ("b", 3), ("c", 2)]));
    assert_eq!((second.closed.as_deref(), held(&db).await), (Some("exhausted"), 8));
    // Permits are released with their leases, each to its own key.
    settle_leases(&mut one, &[first.token]).await.unwrap();
    let third = claim(&mut two, worker, limits, 20, &[first.token]).await.unwrap();
    let freed: BTreeMap<String, i64> = first.of.into_iter().filter(|(key, _)| key != "c").collect();
    assert_eq!(third.of, freed);
    // If only some jobs of a lease have ended, their permits are released once a claim reads the lease.
    let cut = "with cut as (select token, ids[1] as id from queue.lease order by cardinality(ids) desc limit 1)
        update queue.lease l set ids = ids[2:], attempts = attempts[2:], crashes = crashes[2:] from cut where cut.token = l.token";
    let back = "insert into queue.ready (lane, seq, id, fair_id)
        select queue.paired_lane(j.lane), queue.next_id(), j.id, j.fair_id from queue.job j
        where not exists (select from queue.lease l where j.id = any (l.ids)) and not exists (select from queue.ready r where r.id = j.id)
          and not exists (select from queue.done_many d where j.id = any (d.ids))";
    one.run(cut).await;
    one.run(back).await;
    assert!(claim(&mut two, worker, limits, 20, &[]).await.unwrap().ids.is_empty(), "no worker has reported it yet");
    let before = held(&db).await;
    one.run("update queue.limiter set read_at = '-infinity'").await;
    let found = claim(&mut two, worker, limits, 20, &[]).await.unwrap().ids.len()
        + claim(&mut two, worker, limits, 20, &[]).await.unwrap().ids.len();
    assert!(found <= 1 && held(&db).await == before - 1 + found as i64);
    db.finish().await;
}

#[tokio::test]
async fn a_limit_that_becomes_keyed_waits_for_all_workers_and_counts_running_jobs_by_key() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a"; 5].into_iter().chain(["b"; 5])).await;
    on.run("select queue.enqueue('t', '{}') from generate_series(1, 3)").await;
    // Four jobs begin before the limit is set: two jobs without a key, and one job for each of the keys `a` and `b`.
    let lease = tests::protocol::claim(&mut on, worker, 2).await.unwrap();
    assert_eq!(lease.ids().len(), 2);
    let of_fair_queues = tests::fair_queues::claim_fair(&mut on, worker, 0, 2).await.unwrap();
    assert_eq!(of_fair_queues.fair_ids.len(), 2, "one of each key");
    tests::fair_queues::move_to_fair_lanes(&mut on, 100).await.unwrap();
    on.run("select queue.set_limit('type:t', 2, keyed => true)").await;
    let some = claim(&mut on, worker, &["type:t"], 20, &[]).await.unwrap();
    assert_eq!(some.of, counts([("a", 1), ("b", 1)]), "two jobs without a key run");
    assert_eq!(some.floors, None, "what ran already was counted in, below any floor");
    on.run("select queue.set_limit('type:t', 2, keyed => false)").await;
    let other = register(&mut on).await.unwrap();
    let none = claim(&mut on, worker, &["type:t"], 20, &[]).await.unwrap();
    assert_eq!(none.closed.as_deref(), Some("unknown"), "another worker may go by keys still");
    knows(&mut on, other).await;
    let none = claim(&mut on, worker, &["type:t"], 20, &[]).await.unwrap();
    assert_eq!((none.ids.len(), none.closed.as_deref()), (0, Some("full")), "six run, of any key");
    on.run("select queue.unset_limit('type:t')").await;
    let none = claim(&mut on, worker, &["type:t"], 20, &[]).await.unwrap();
    assert_eq!(none.closed.as_deref(), Some("gone"));
    db.finish().await;
}

#[tokio::test]
async fn claims_by_key_take_keys_in_turn() {
    play(
        "the limit set for a key comes first, raises and lowers, and ends",
        &[
            Fill("default", "a9 b9 c9"),
            Run("select queue.set_limit('type:t', 2, keyed => true), queue.set_limit_key('type:t', 'a', 4), queue.set_limit_key('type:t', 'b', 0)"),
            Run("select queue.set_limit_key('other', 'c', 9)"),
            TakesByKey(50, "a4 c2", Some("exhausted")),
            Run("select queue.set_limit_key('type:t', 'b', 5), queue.set_limit_key('type:t', 'a', 1)"),
            // The running jobs of key `a` exceed its new limit and continue.
            TakesByKey(50, "b5", Some("exhausted")),
            Ends(0),
            TakesByKey(50, "a1 c2", Some("exhausted")),
            Run("select queue.set_limit_key('type:t', 'a', null), queue.set_limit_key('type:t', 'b')"),
            // Both keys have a limit of two again.
            TakesByKey(50, "a1", Some("exhausted")),
            // The limit is zero, so only the key `c`, which has a limit of its own, has permits.
            Run("select queue.set_limit('type:t', 0), queue.set_limit_key('type:t', 'c', 4)"),
            TakesByKey(50, "c2", Some("exhausted")),
        ],
    )
    .await;
    play(
        "few keys with much room share a claim, in turns",
        &[
            Fill("default", "a40 b40 c3"),
            Run("select queue.set_limit('type:t', 30, keyed => true), queue.set_limit_key('type:t', 'b', 12)"),
            TakesByKey(100, "a30 b12 c3", Some("exhausted")),
            Run("select queue.set_limit('type:t', 60, keyed => true), queue.set_limit_key('type:t', 'b', null)"),
            TakesByKey(20, "a10 b10", None),
            TakesByKey(100, "b18", None),
            Count("select sum(n)::bigint from queue.permit", 83),
        ],
    )
    .await;
    play(
        "starts of all count as of no key once the rate is of each",
        &[
            Fill("default", "12"),
            Run("select queue.set_limit('type:t', null, 10, '1 h')"),
            Takes(3, "3", None),
            Takes(4, "4", None),
            Run("select queue.set_limit('type:t', null, 10, '1 h', keyed => true)"),
            MoveToFairLanes,
            TakesByKey(9, "3", Some("exhausted")),
            TakesByKey(9, "", Some("exhausted")),
        ],
    )
    .await;
    play(
        "once an operator's word is gone, what was counted by it counts by key again",
        &[
            Fill("default", "2 a3"),
            // The update turns the operator's limit into a limit declared in code.
            Run("select queue.set_limit('type:t', 1, keyed => true); update queue.bound set by_operator = false where name = 'type:t'"),
            TakesByKey(1, "a1", None),
            Run("select queue.set_limit('type:t', 2, keyed => false)"),
            // All running jobs count, regardless of their keys.
            Takes(2, "1", Some("full")),
            // The operator's limit is removed before a claim uses it, so the limit declared in code applies again.
            Run("select queue.set_limit('type:t', 2, keyed => true); select queue.unset_limit('type:t')"),
            TakesByKey(9, "", Some("exhausted")),
        ],
    )
    .await;
}

#[tokio::test]
async fn jobs_without_a_key_share_one_and_limits_by_key_combine_with_others() {
    let (db, mut on, worker) = with(5).await;
    fill(&mut on, "default", ["a"; 5].into_iter().chain(["b"; 5])).await;
    tests::fair_queues::move_to_fair_lanes(&mut on, 100).await.unwrap();
    on.run(
        "select queue.set_limit('type:t', 2, keyed => true), queue.set_limit('queue:default', 5), queue.set_limit('x', 3, keyed => true)",
    )
    .await;
    let limits = &["type:t", "queue:default", "x"];
    let first = claim(&mut on, worker, limits, 50, &[]).await.unwrap();
    assert_eq!((first.ids.len(), first.closed.as_deref()), (5, Some("full")), "the queue has five");
    assert!(first.of.values().all(|count| *count <= 2), "{first:?}");
    on.run("select queue.set_limit('queue:default', 9)").await;
    let second = claim(&mut on, worker, limits, 50, &[]).await.unwrap();
    assert_eq!((second.ids.len(), second.closed.as_deref()), (1, Some("exhausted")), "two of each of three keys");
    assert_eq!(db.count("select count(*) from queue.permit").await, 6, "of every limit");
    silence(&mut on, worker).await.unwrap();
    settle_leases(&mut on, &[first.token, second.token]).await.unwrap();
    on.run("update queue.limiter set read_at = '-infinity'").await;
    assert!(claim(&mut on, worker, limits, 50, &[]).await.unwrap().ids.is_empty(), "who is silent takes none");
    let other = register(&mut on).await.unwrap();
    assert!(claim(&mut on, Uuid::new_v4(), limits, 50, &[]).await.unwrap().ids.is_empty());
    knows(&mut on, other).await;
    on.run("update queue.limiter set read_at = '-infinity'").await;
    assert_eq!(claim(&mut on, other, limits, 50, &[]).await.unwrap().ids.len(), 6);
    db.finish().await;
}

#[tokio::test]
async fn of_a_key_in_several_lanes_a_claim_takes_no_more_than_in_one() {
    let (db, mut on, worker) = with(0).await;
    let lanes: &[LaneOf] = &[("default", true, 0, 50), ("other", true, 0, 50), ("default", false, 0, 50), ("other", false, 0, 50)];
    let of_all = ClaimArguments { by_key: true, limits: &["type:t"], lanes, most: 50, freed: &[], slack: 0, floors: None };
    on.run("select queue.ensure_lane(q, 't', 100, true) from unnest(array['default', 'other']) q").await;
    for limit in ["select queue.set_limit('type:t', 3, keyed => true)", "select queue.set_limit('type:t', null, 3, '1 h', keyed => true)"] {
        for queue in ["default", "other"] {
            fill(&mut on, queue, ["a"; 4].into_iter().chain(["b"; 4])).await;
        }
        // Half of the jobs are quarantined after crashes.
        let suspect = "update queue.ready set lane = queue.lane_id(q, 't', 100, true), fair_id = null, crashes = 1
            from unnest(array['default', 'other']) q where lane = queue.paired_lane(queue.lane_id(q, 't', 100, false)) and seq % 2 = 0";
        on.run(suspect).await;
        on.run(limit).await;
        let some = ask(&mut on, worker, of_all).await.unwrap();
        assert_eq!(some.of, counts([("a", 3), ("b", 3)]), "of {limit}");
        let none = ask(&mut on, worker, of_all).await.unwrap();
        assert_eq!((none.ids.len(), none.closed.as_deref()), (0, Some("exhausted")));
        settle_leases(&mut on, &[some.token]).await.unwrap();
        assert!(claim(&mut on, worker, &["type:t"], 0, &[some.token]).await.unwrap().ids.is_empty());
        assert!(held(&db).await == 0);
    }
    db.finish().await;
}

#[tokio::test]
async fn a_worker_without_a_permit_of_a_key_waits_without_its_limiter_and_is_notified_of_that_key_only() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "b"]).await;
    fill(&mut on, "other", ["a"]).await;
    on.run("select queue.set_limit('shared', 1, keyed => true)").await;
    let first = claim(&mut on, worker, &["shared"], 1, &[]).await.unwrap();
    let second = claim(&mut on, worker, &["shared"], 1, &[]).await.unwrap();
    let (of_a, of_b) = if first.of.contains_key("a") { (first, second) } else { (second, first) };
    let waits = (worker, "other", 0);
    let none = claim_from(&mut on, waits, &["shared"], 5, &[]).await.unwrap();
    assert_eq!((none.ids.len(), none.closed.as_deref()), (0, Some("exhausted")));
    assert_eq!(db.count("select cardinality(fair_ids)::bigint from queue.limiter").await, 1);
    // The limiter row now lists the fair key, so the next claim reads the permits without locking the limiter row.
    let mut holder = connect(&db.url).await;
    let mut open = holder.begin().await.unwrap();
    open.run("select from queue.limiter for update").await;
    let none = claim_from(&mut on, waits, &["shared"], 5, &[]).await.unwrap();
    assert_eq!((none.ids.len(), none.closed.as_deref()), (0, Some("exhausted")));
    open.rollback().await.unwrap();
    let mut listener = db.listen("wake").await;
    let mut received = async || {
        db.run("select pg_notify(queue.channel('wake'), 'the last')").await;
        let mut received = 0;
        loop {
            match next_payload(&mut listener).await {
                last if last == "the last" => return received,
                one => received += i32::from(one.starts_with("!permit")),
            }
        }
    };
    settle_leases(&mut on, &[of_b.token, of_a.token]).await.unwrap();
    claim(&mut on, worker, &["shared"], 0, &[of_b.token]).await.unwrap();
    assert_eq!(received().await, 0, "no worker waits for that key");
    claim(&mut on, worker, &["shared"], 0, &[of_a.token]).await.unwrap();
    claim(&mut on, worker, &["shared"], 0, &[of_a.token]).await.unwrap();
    assert_eq!(received().await, 1, "once");
    let some = claim_from(&mut on, waits, &["shared"], 5, &[]).await.unwrap();
    assert_eq!((some.of, some.closed), (counts([("a", 1)]), None));
    db.finish().await;
}

#[tokio::test]
async fn a_turn_is_as_many_as_a_keys_limit_and_locked_jobs_are_skipped() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "a", "a", "b", "b", "b", "c"]).await;
    on.run("select queue.set_limit('type:t', 3, keyed => true)").await;
    let mut open = on.begin().await.unwrap();
    let some = claim_from(&mut open, (worker, "default", i64::MIN), &["type:t"], 4, &[]).await.unwrap();
    assert!(some.of.values().any(|count| *count == 3), "three of one, if it has them: {some:?}");
    open.rollback().await.unwrap();
    on.run("select queue.set_limit('type:t', 1, keyed => true)").await;
    let mut holder = connect(&db.url).await;
    let mut open = holder.begin().await.unwrap();
    let first = "select id from queue.ready where fair_id = queue.fair_id_of('a') order by seq limit 1 for update";
    let held: i64 = open.one(first).await;
    let some = claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
    assert_eq!((some.ids.len(), &some.of), (3, &counts([("a", 1), ("b", 1), ("c", 1)])));
    assert!(!some.ids.contains(&held));
    open.rollback().await.unwrap();
    let listed = "select count(distinct id) from queue.lease cross join lateral unnest(ids) id";
    assert_eq!((db.count(listed).await, self::held(&db).await), (3, 3));
    db.finish().await;
}

#[tokio::test]
async fn starts_are_counted_once_in_any_order() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a"; 20].into_iter().chain(["b"; 20])).await;
    on.run("select queue.set_limit('type:t', null, 8, '1 h', 6, keyed => true)").await;
    let lanes: &[LaneOf] = &[("default", true, 0, 2)];
    for slack in [20_000, 0, 10_000, 0, 40_000] {
        let two = ClaimArguments { by_key: true, limits: &["type:t"], lanes, most: 2, freed: &[], slack, floors: None };
        let some = ask(&mut on, worker, two).await.unwrap();
        assert_eq!(some.ids.len(), 2);
    }
    let wrong = "select count(*) from (select total, sum(n) over (partition by fair_id order by at_ms) as counted from queue.rate) r
        where total <> counted";
    assert_eq!(db.count(wrong).await, 0);
    claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
    let of_each = "select count(*) from (select sum(n) as n from queue.rate group by fair_id) r where n = 6";
    assert_eq!(db.count(of_each).await, 2, "no more than the burst of any");
    on.run("select queue.set_limit('type:t', null, 8, '1 h', keyed => true)").await;
    claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
    assert_eq!(db.count(&of_each.replace('6', "8")).await, 2);
    // The oldest starts are deleted, as if they had left the window. The remaining starts count as before.
    on.run("delete from queue.rate r where at_ms = (select min(at_ms) from queue.rate o where o.fair_id = r.fair_id)").await;
    let gone = 16 - db.count("select sum(n)::bigint from queue.rate").await;
    assert_eq!(claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap().ids.len() as i64, gone);
    db.finish().await;
}

#[tokio::test]
async fn the_cost_of_a_keys_starts_does_not_grow_with_their_number() {
    let (db, mut on, worker) = with(0).await;
    on.run("select queue.set_limit('type:t', null, 10000, '1 h', 9000, keyed => true)").await;
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    fill(&mut on, "default", keys.iter().map(String::as_str)).await;
    buffers(&mut on, worker).await;
    let few = buffers(&mut on, worker).await;
    let begun = "insert into queue.rate (limit_id, fair_id, at_ms, n, total)
        select queue.hash('type:t'), fair_id, queue.clock_ms() - 1000 + n, 1, n from queue.ready cross join generate_series(1, 1000) n";
    on.run(begun).await;
    on.run("analyze queue.rate").await;
    buffers(&mut on, worker).await;
    let many = buffers(&mut on, worker).await;
    assert!(many <= 2 * few, "{few} buffers, and then {many}");
    db.finish().await;
}
