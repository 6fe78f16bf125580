//! Tests claims under unkeyed limits on separate connections: the lanes from which the claims take jobs, the counted permits, the wait
//! times, and the results.

use std::time::Duration;

use queue_core::Queue;
use sqlx::{Connection as _, PgConnection};
use tests::{
    Sql as _,
    limits::{prune_rates, slow_down},
    next_payload,
    protocol::{register, settle_leases, silence},
};
use uuid::Uuid;

use super::claim_steps::{
    ClaimArguments, LaneOf,
    Step::{Count, Fill, Run, TakesUnder},
    ask, claim, claim_keyed, connect, fill, held, knows, play, refused, with,
};

#[tokio::test]
async fn a_claim_takes_at_most_the_free_permits_and_a_waiting_one_sees_the_first() {
    let (db, mut one, worker) = with(10).await;
    let mut two = connect(&db.url).await;
    one.run("select queue.set_limit('type:t', 3)").await;
    let mut open = one.begin().await.unwrap();
    let first = claim(&mut open, worker, &["type:t"], &["default"], 2, &[]).await.unwrap();
    assert_eq!((first.ids.len(), first.closed), (2, None));
    let error = claim(&mut two, worker, &["type:t"], &["default"], 5, &[]).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("55P03"), "it waits for the first one");
    open.commit().await.unwrap();
    let second = claim(&mut two, worker, &["type:t"], &["default"], 5, &[]).await.unwrap();
    assert_eq!((second.ids.len(), second.closed.as_deref(), second.wait_ms), (1, Some("full"), None));
    assert!(first.ids.iter().all(|id| *id < second.ids[0]), "in the order of their places");
    assert_eq!(held(&db).await, 3);
    assert_eq!(db.count("select count(*) from queue.lease where lane is not null and attempts[1] = 1").await, 2);
    // Permits are released with their leases: immediately for the worker that ended the jobs, and within a second for other workers.
    settle_leases(&mut one, &[first.token]).await.unwrap();
    let third = claim(&mut two, worker, &["type:t"], &["default"], 5, &[first.token]).await.unwrap();
    assert_eq!((third.ids.len(), held(&db).await), (2, 3));
    let part = "with cut as (update queue.lease set ids = ids[1:1], attempts = attempts[1:1], crashes = crashes[1:1] where cardinality(ids) = 2 returning 1)
        insert into queue.ready (lane, seq, id) select l.lane, l.ids[2], l.ids[2] from queue.lease l, cut where cardinality(l.ids) = 2";
    one.run(part).await;
    let none = claim(&mut two, worker, &["type:t"], &["default"], 5, &[first.token]).await.unwrap();
    assert_eq!(none.ids.len(), 0, "no worker has reported it yet");
    one.run("update queue.limiter set read_at = '-infinity'").await;
    let fourth = claim(&mut two, worker, &["type:t"], &["default"], 5, &[]).await.unwrap();
    assert_eq!((fourth.ids.len(), held(&db).await), (1, 3));
    db.finish().await;
}

#[tokio::test]
async fn only_a_living_worker_takes_jobs_and_only_from_its_lanes() {
    let (db, mut on, worker) = with(3).await;
    on.run("select queue.enqueue('t', '{}', '{\"queue\": \"other\"}'), queue.set_limit('type:t', 9)").await;
    let none = claim(&mut on, Uuid::new_v4(), &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert_eq!((none.ids.len(), db.rows_of(&["permit", "lease"]).await), (0, 0));
    assert_eq!(claim(&mut on, worker, &["type:t"], &["other"], 9, &[]).await.unwrap().ids.len(), 1);
    silence(&mut on, worker).await.unwrap();
    assert!(claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap().ids.is_empty());
    db.finish().await;
}

#[tokio::test]
async fn a_new_limit_waits_until_every_living_worker_knows_it_and_counts_in_what_runs() {
    let (db, mut on, worker) = with(9).await;
    assert_eq!(tests::protocol::claim(&mut on, worker, 4).await.unwrap().ids().len(), 4);
    let other = register(&mut on).await.unwrap();
    on.run("select queue.set_limit('type:t', 5)").await;
    let limit = async || Queue::new(&db.pool).limits().await.unwrap().remove(0);
    let none = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert_eq!((none.ids.len(), none.closed.as_deref(), limit().await.awaits), (0, Some("unknown"), 1));
    knows(&mut on, other).await;
    let one = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert_eq!((one.ids.len(), one.closed.as_deref()), (1, Some("full")));
    let found = limit().await;
    assert_eq!((found.name.as_str(), found.used, found.waiting, found.by_operator, found.awaits), ("type:t", 5, 4, true, 0));
    // The new value applies to the same lanes as before, so claims do not wait until the new worker acknowledges the value.
    register(&mut on).await.unwrap();
    on.run("select queue.set_limit('type:t', 6)").await;
    assert_eq!(claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap().ids.len(), 1);
    on.run("select queue.unset_limit('type:t')").await;
    let none = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert_eq!((none.closed.as_deref(), held(&db).await), (Some("gone"), 0));
    db.finish().await;
}

#[tokio::test]
async fn of_several_limits_each_must_have_a_permit() {
    let steps = [
        Fill("default", "9"),
        Run("select queue.set_limit('type:t', 5), queue.set_limit('queue:default', 2), queue.set_limit('queue:other', 1)"),
        TakesUnder(false, &["type:t", "queue:default"], "default", 9, "2", Some("full")),
        // Only the limit without free permits has waiters.
        Count("select count(*) from queue.limiter where has_waiters", 1),
        Fill("other", "3"),
        TakesUnder(false, &["type:t", "queue:other"], "other", 9, "1", Some("full")),
        Count("select sum(n)::bigint from queue.permit", 6),
    ];
    play("of several limits", &steps).await;
}

/// More starts than the rate allows are in the window, which happens if the rate is lowered. The reported wait ends when enough starts have
/// left the window.
#[tokio::test]
async fn above_a_rate_the_claim_reports_when_enough_starts_will_have_left_the_window() {
    let (db, mut on, worker) = with(1).await;
    let began = "select queue.set_limit('type:t', null, 3, '1 h'); insert into queue.rate (limit_id, at_ms, n)
      select queue.hash('type:t'), queue.clock_ms() - ago, 3 from unnest('{1800000,600000}'::bigint[]) ago";
    on.run(began).await;
    let claimed = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert!(claimed.ids.is_empty() && claimed.wait_ms.unwrap() > 2_700_000.0, "{claimed:?}");
    db.finish().await;
}

#[tokio::test]
async fn a_worker_without_a_permit_is_notified_once_of_one_that_no_other_needs() {
    // The limit of the type may be keyed or unkeyed. The result is the same, because the limit without free permits is unkeyed.
    for by_key in [false, true] {
        let (db, mut on, worker) = with(0).await;
        let mut listener = db.listen("wake").await;
        on.run(&format!("select queue.set_limit('shared', 2), queue.set_limit('type:t', 9, keyed => {by_key})")).await;
        fill(&mut on, "default", ["a", "b", "c"]).await;
        if !by_key {
            on.run("update queue.ready set fair_id = null, lane = queue.lane_id('default', 't', 100, false)").await;
        }
        let claim = async |on: &mut PgConnection, most: i32, freed: &[Uuid]| {
            if by_key {
                claim_keyed(on, worker, &["shared", "type:t"], most, freed).await.unwrap()
            } else {
                claim(on, worker, &["shared", "type:t"], &["default"], most, freed).await.unwrap()
            }
        };
        let (first, none) = (claim(&mut on, 2, &[]).await, claim(&mut on, 2, &[]).await);
        assert_eq!((first.ids.len(), none.ids.len(), none.closed.as_deref()), (2, 0, Some("full")), "by key: {by_key}");
        settle_leases(&mut on, &[first.token]).await.unwrap();
        // A claim that only reports ended leases does not use the permit.
        for _ in 0..2 {
            claim(&mut on, 0, &[first.token]).await;
        }
        on.run("select pg_notify(queue.channel('wake'), 'the last')").await;
        let (room, mut received) = (format!("!permit {}", db.count("select queue.hash('shared')").await), Vec::new());
        while received.last().is_none_or(|last| last != "the last") {
            received.push(next_payload(&mut listener).await);
        }
        assert_eq!(received.iter().filter(|payload| **payload == room).count(), 1, "by key: {by_key}: {received:?}");
        db.finish().await;
    }
}

#[tokio::test]
async fn no_window_has_more_starts_than_its_rate_nor_a_short_one_more_than_its_burst() {
    for by_key in [false, true] {
        let (db, mut on, worker) = with(0).await;
        let keys: &[&str] = if by_key { &["a", "b"] } else { &["a"] };
        for key in keys {
            fill(&mut on, "default", [*key; 14]).await;
        }
        if !by_key {
            on.run("update queue.ready set fair_id = null, lane = queue.lane_id('default', 't', 100, false)").await;
        }
        on.run(&format!("select queue.set_limit('type:t', null, 6, '600 ms', 2, keyed => {by_key})")).await;
        let (mut taken, closes) = (0, if by_key { "exhausted" } else { "rate" });
        while taken < 14 * keys.len() {
            let claimed = if by_key {
                claim_keyed(&mut on, worker, &["type:t"], 50, &[]).await.unwrap()
            } else {
                claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap()
            };
            assert!(claimed.of.values().all(|count| *count <= 2), "{claimed:?}");
            taken += claimed.ids.len();
            if taken < 14 * keys.len() {
                assert_eq!((claimed.closed.as_deref(), claimed.within_ms.is_none_or(|ms| ms == 10)), (Some(closes), true), "{claimed:?}");
                // No further permit becomes free before the reported wait ends.
                let wait = claimed.wait_ms.unwrap().max(0.0);
                tokio::time::sleep(Duration::from_secs_f64(wait / 1000.0) + Duration::from_millis(1)).await;
            }
        }
        for (range, most) in [(599, 6), (199, 2)] {
            let window = format!("partition by fair_id order by at_ms range between {range} preceding and current row");
            let found = db.count(&format!("select max(n)::bigint from (select sum(n) over ({window}) as n from queue.rate) w")).await;
            assert!(found <= most, "by key: {by_key}: {found} within {range} ms");
        }
        db.finish().await;
    }
}

#[tokio::test]
async fn a_start_is_counted_no_earlier_than_it_may_be_and_the_later_the_longer_its_worker_needs() {
    let (db, mut on, worker) = with(2).await;
    fill(&mut on, "default", ["a", "b"]).await;
    let of = async |on: &mut PgConnection, by_key: bool, slack: i64| {
        let lanes: &[LaneOf] = &[("default", by_key, i64::MIN, 1)];
        ask(on, worker, ClaimArguments { by_key, limits: &["type:t"], lanes, most: 1, freed: &[], slack, floors: None }).await.unwrap()
    };
    for (by_key, slack, counted) in [(false, 0, 250), (false, 2000, 2000), (true, 0, 250), (true, 20_000, 20_000)] {
        // Starts are recorded with a resolution of a thousandth of the window, here 3.6 seconds.
        on.run(&format!("delete from queue.rate; select queue.set_limit('type:t', null, 100, '1 h', keyed => {by_key})")).await;
        let before = db.count("select queue.clock_ms()").await;
        let claimed = of(&mut on, by_key, slack).await;
        let after = db.count("select queue.clock_ms()").await;
        assert_eq!((claimed.ids.len(), claimed.within_ms), (1, Some(counted)));
        let latest = db.count("select max(at_ms) from queue.rate").await;
        assert!((before + counted..=after + counted + 3600).contains(&latest), "{latest} between {before} and {after}, by key: {by_key}");
    }
    // Without a rate, no time is reported.
    on.run("select queue.set_limit('type:t', 9, keyed => false)").await;
    assert_eq!(of(&mut on, false, 2000).await.within_ms, None);
    db.finish().await;
}

#[tokio::test]
async fn a_slowed_limit_stays_closed_until_its_time_which_never_moves_earlier() {
    let (db, mut on, worker) = with(3).await;
    on.run("select queue.set_limit('type:t', 3), queue.set_limit('other', 3)").await;
    for ms in [3_600_000.0, 10.0] {
        assert_eq!(slow_down(&mut on, "type:t", ms).await.unwrap(), 1);
    }
    let none = claim(&mut on, worker, &["type:t"], &["default"], 9, &[]).await.unwrap();
    assert!(none.ids.is_empty() && none.closed.as_deref() == Some("rate") && none.wait_ms.unwrap() > 30_000.0, "{none:?}");
    assert_eq!(claim(&mut on, worker, &["other"], &["default"], 9, &[]).await.unwrap().ids.len(), 3);
    db.finish().await;
}

#[tokio::test]
async fn limits_are_checked_and_become_visible_in_the_order_of_their_numbers() {
    let (db, mut on, _) = with(0).await;
    for (statement, constraint) in [
        ("select queue.set_limit('a b', 1)", "bound_name_is_a_name"),
        ("select queue.set_limit('x', -1)", "bound_concurrency_in_range"),
        ("select queue.set_limit('x', null, 0, '1 s')", "bound_rate_in_range"),
        ("select queue.set_limit('x', null, 1, '10 ms')", "bound_rate_in_range"),
        ("select queue.set_limit('x', null, 1)", "bound_rate_is_whole"),
        ("select queue.set_limit('x', null, 3, '1 s', 4)", "bound_burst_in_range"),
        ("select queue.set_limit('x', 1, reason => repeat('x', 1001))", "bound_reason_is_short"),
        ("insert into queue.limiter (limit_id) values (1), (1)", "limiter_pkey"),
        (
            "insert into queue.permit (limit_id, place, token, n) select 1, 1, gen_random_uuid(), 1 from generate_series(1, 2)",
            "permit_pkey",
        ),
        ("insert into queue.rate (limit_id, at_ms, n) values (1, 1, 1), (1, 1, 1)", "rate_pkey"),
        ("insert into queue.bound_type values ('t', 'x'), ('t', 'x')", "bound_type_pkey"),
        ("insert into queue.bound (name, by_operator, number, revision) values ('x', true, 1, 1), ('x', true, 1, 1)", "bound_pkey"),
        ("select queue.set_limit_key('a b', 'k', 1)", "key_bound_name_is_a_name"),
        ("select queue.set_limit_key('x', 'k', -1)", "key_bound_concurrency_in_range"),
        ("insert into queue.key_bound (name, fair_id, key, concurrency) values ('x', 1, 'k', 1)", "key_bound_fair_id_is_its_hash"),
        (
            "insert into queue.key_bound (name, fair_id, key, concurrency) select 'x', queue.fair_id_of('k'), 'k', 1 from generate_series(1, 2)",
            "key_bound_pkey",
        ),
    ] {
        assert_eq!(refused(&mut on, statement).await, constraint, "{statement}");
    }
    let mut open = on.begin().await.unwrap();
    open.run("select queue.set_limit('x', 1)").await;
    let mut later = db.connect().await;
    let later = tokio::spawn(async move { later.run("select queue.pause('mail')").await });
    db.until_waiting(1).await;
    open.commit().await.unwrap();
    later.await.unwrap();
    let mut listener = db.listen("wake").await;
    for (statement, keyed) in [
        ("select queue.set_limit('x', 2)", 0),
        ("select queue.set_limit('x', 1, keyed => true)", 1),
        ("select queue.set_limit_key('x', 'k', 2)", 1),
        // The limit stays keyed.
        ("select queue.set_limit('x', 3)", 1),
        ("select queue.unset_limit('x')", 0),
    ] {
        let revision = "select coalesce(max(revision), 0) from queue.bound";
        let before = db.count(revision).await;
        on.run(statement).await;
        assert_eq!(next_payload(&mut listener).await, "!control", "{statement}");
        assert_eq!(db.count("select count(*) from queue.bound where keyed").await, keyed, "{statement}");
        assert!(statement.contains("unset") || db.count(revision).await > before, "workers see that something has changed: {statement}");
    }
    assert_eq!(db.rows_of(&["limiter"]).await, 0, "nothing is left of it");
    db.finish().await;
}

#[tokio::test]
async fn starts_are_deleted_once_no_window_includes_them() {
    let (db, mut on, worker) = with(3).await;
    on.run("select queue.set_limit('type:t', null, 100, '1 h')").await;
    claim(&mut on, worker, &["type:t"], &["default"], 3, &[]).await.unwrap();
    for (forgotten, later) in [(0, "update queue.rate set at_ms = at_ms - 3607000"), (1, "select 1")] {
        assert_eq!(prune_rates(&mut on).await.unwrap(), forgotten);
        on.run(later).await;
    }
    db.finish().await;
}

#[tokio::test]
async fn a_claim_takes_up_to_each_lanes_maximum_from_its_floor_and_skips_locked_jobs() {
    let (db, mut on, worker) = with(0).await;
    on.run("select queue.set_limit('type:t', 100)").await;
    let jobs: Vec<i64> = on.all("select queue.enqueue('t', '{}') from generate_series(1, 6)").await;
    let others: Vec<i64> = on.all("select queue.enqueue('t', '{}', '{\"queue\": \"other\"}') from generate_series(1, 3)").await;
    let take = async |on: &mut PgConnection, lanes: &[LaneOf<'_>], most| {
        let claimed =
            ask(on, worker, ClaimArguments { by_key: false, limits: &["type:t"], lanes, most, freed: &[], slack: 0, floors: None }).await;
        let mut claimed = claimed.unwrap();
        claimed.ids.sort_unstable();
        (claimed.ids, claimed.closed)
    };
    let mut other = connect(&db.url).await;
    let mut open = other.begin().await.unwrap();
    open.run(&format!("select from queue.ready where id = {} for update", jobs[1])).await;
    let (taken, _) = take(&mut on, &[("default", false, jobs[0] + 1, 2)], 9).await;
    assert_eq!(taken, jobs[2..4], "neither what is before the floor nor what others hold, and two of them");
    open.rollback().await.unwrap();
    let (taken, _) = take(&mut on, &[("default", false, 0, 1), ("other", false, 0, 5)], 9).await;
    assert_eq!(taken, [&jobs[..1], &others[..]].concat(), "one of this lane, all of that");
    // Two permits are left, so a claim of two jobs is not limited.
    on.run("select queue.set_limit('type:t', 8)").await;
    let (taken, closed) = take(&mut on, &[("default", false, 0, 5)], 2).await;
    assert_eq!((taken, closed), (vec![jobs[1], jobs[4]], None));
    on.run("select queue.set_limit('type:t', 100)").await;
    // A fair lane provides only jobs with a fair key, and a plain lane only jobs without one.
    let plain: Vec<i64> = on.all("select id from queue.ready order by id").await;
    let fair: Vec<i64> = on.all("select queue.enqueue('t', '{}', '{\"fair\": \"a\"}') from generate_series(1, 4)").await;
    let paired = ("default", true, i64::MIN, 9);
    assert_eq!(take(&mut on, &[("default", true, i64::MIN, 2)], 9).await.0, fair[..2]);
    assert_eq!(take(&mut on, &[("default", false, 0, 9)], 9).await.0, plain);
    assert_eq!(take(&mut on, &[paired], 9).await.0, fair[2..]);
    db.finish().await;
}

#[tokio::test]
async fn a_claim_takes_the_first_of_a_lane_in_any_order_of_rows() {
    let (db, mut on, worker) = with(4).await;
    let jobs: Vec<i64> = on.all("select id from queue.ready order by id").await;
    let turned = "select queue.set_limit('type:t', 100);
      create temporary table turned as select * from queue.ready; delete from queue.ready;
      insert into queue.ready select * from turned order by seq desc; drop table turned;
      set enable_seqscan = on; set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off";
    on.run(turned).await;
    let mut taken = claim(&mut on, worker, &["type:t"], &["default"], 2, &[]).await.unwrap().ids;
    taken.sort_unstable();
    assert_eq!(taken, jobs[..2]);
    assert_eq!(on.one::<Vec<i64>>("select ids from queue.lease").await, jobs[..2], "a lease lists its jobs by id");
    db.finish().await;
}

/// The lease of the test also contains jobs that the limit does not cover.
#[tokio::test]
async fn a_lease_that_is_read_again_holds_no_more_permits_than_before() {
    let (db, mut on, worker) = with(3).await;
    let others = "select queue.enqueue('t', '{}', '{\"queue\": \"other\"}') from generate_series";
    on.run(&format!("{others}(1, 1)")).await;
    let lease = tests::protocol::claim(&mut on, worker, 9).await.unwrap();
    on.run(&format!("{others}(1, 5); select queue.set_limit('queue:other', 3)")).await;
    knows(&mut on, worker).await;
    let claimed = claim(&mut on, worker, &["queue:other"], &["other"], 9, &[lease.token]).await.unwrap();
    assert_eq!((lease.ids().len(), claimed.ids.len(), claimed.closed.as_deref()), (4, 2, Some("full")), "one of its jobs is of that queue");
    db.finish().await;
}
