//! Tests per-key limits, one function at a time: the removal of a key's own limit, and the free permits reported for each key.

use sqlx::{Connection as _, FromRow, PgConnection};
use tests::{
    Sql as _, fair_queues,
    protocol::{JobVerdict, settle},
};

use super::claim_steps::{LaneOf, claim_from, claim_keyed as claim, connect, counts, fill, knows, with};

#[tokio::test]
async fn a_bound_of_a_key_ends_under_one_limit_and_for_one_key() {
    let (db, mut on, _) = with(0).await;
    on.run("select queue.set_limit_key(n, k, 3) from unnest('{one,two}'::text[]) n, unnest('{a,b}'::text[]) k").await;
    on.run("select queue.set_limit_key('one', 'a', null)").await;
    let left: Vec<(String, String)> =
        sqlx::query_as("select name, key from queue.key_bound order by 1, 2").fetch_all(&mut on).await.unwrap();
    assert_eq!(left, [("one", "b"), ("two", "a"), ("two", "b")].map(|(name, key)| (name.to_owned(), key.to_owned())));
    db.finish().await;
}

/// Number of free permits of a key under a limit, and the delay in ms until the key's next start if the delay is known.
#[derive(Debug, FromRow)]
struct Room {
    free: Option<i64>,
    wait_ms: Option<f64>,
}

async fn room(on: &mut PgConnection, limit: &str, key: &str) -> Room {
    let room =
        "select free, wait_ms from queue.free_fair_permits(array[queue.hash($1)], null, array[queue.fair_id_of('z'), queue.fair_id_of($2)])
        where fair_id = queue.fair_id_of($2)";
    sqlx::query_as(room).bind(limit).bind(key).fetch_one(on).await.unwrap()
}

/// Returns whether a key has to wait for `seconds`, with a tolerance for slow machines.
fn waits(room: &Room, seconds: f64) -> bool {
    let least = (seconds - 8.0) * 1000.0;
    room.free.is_some_and(|free| free <= 0) && room.wait_ms.is_some_and(|ms| ms > least && ms <= seconds * 1000.0)
}

#[tokio::test]
async fn starts_of_a_key_leave_its_windows_gradually_and_count_for_no_other() {
    let (db, mut on, _) = with(0).await;
    on.run("select queue.set_limit('rated', null, 6, '60 s', 2, keyed => true)").await;
    // Each row of values contains a key, the seconds since its jobs began, and the number of jobs.
    let began = "insert into queue.rate (limit_id, fair_id, at_ms, n, total)
        select queue.hash('rated'), queue.fair_id_of(b.key), queue.clock_ms() - b.ago * 1000, b.n, sum(b.n) over (partition by b.key order by b.ago desc)
        from (values ('short', 30, 3), ('short', 5, 2), ('long', 50, 1), ('long', 30, 7), ('some', 40, 1), ('some', 3, 1)) b (key, ago, n)";
    on.run(began).await;
    let short = room(&mut on, "rated", "short").await;
    assert!(waits(&short, 15.0), "two began within a third of a minute: {short:?}");
    // The key `long` has more starts in the window than the rate allows, which happens if the rate is lowered. The key waits until enough
    // starts have left the window.
    let long = room(&mut on, "rated", "long").await;
    assert!(waits(&long, 30.0), "eight began within a minute: {long:?}");
    let some = room(&mut on, "rated", "some").await;
    assert!(some.free == Some(1) && some.wait_ms.is_none(), "one of two began lately: {some:?}");
    let none = room(&mut on, "rated", "none").await;
    assert!(none.free == Some(2) && none.wait_ms.is_none(), "{none:?}");
    db.finish().await;
}

#[tokio::test]
async fn permits_of_a_key_count_for_no_other_and_its_own_bound_takes_precedence() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "a", "b"]).await;
    on.run("select queue.set_limit('type:t', 2, keyed => true), queue.set_limit_key('type:t', 'c', 7)").await;
    assert_eq!(claim(&mut on, worker, &["type:t"], 9, &[]).await.unwrap().of, counts([("a", 2), ("b", 1)]));
    for (key, free) in [("a", 0), ("b", 1), ("c", 7), ("d", 2)] {
        assert_eq!(room(&mut on, "type:t", key).await.free, Some(free), "of {key}");
    }
    on.run("select queue.set_limit_key('type:t', 'a', 3)").await;
    assert_eq!(room(&mut on, "type:t", "a").await.free, Some(1));
    db.finish().await;
}

/// Returns the jobs that a claim would take from the lanes under the limit of their type, two per turn. Each job is returned as its
/// position in `all`.
async fn chosen(on: &mut PgConnection, all: &[i64], lanes: &[LaneOf<'_>], most: i32) -> Vec<usize> {
    let choose =
        "select array(select r.id from unnest(c.ats) with ordinality u (at, nth) join queue.ready r on r.ctid = u.at order by u.nth)
        from queue.choose_under_keys(
          array(select queue.lane_id(q, 't', 100, not l) from unnest($1::text[], $2::bool[]) with ordinality u (q, l, nth) order by nth),
          $3, $2, $4, 2, $5, array[queue.hash('type:t')], array[null::bigint]) c";
    let choose = sqlx::query_scalar(choose).bind(lanes.iter().map(|lane| lane.0).collect::<Vec<_>>());
    let choose = choose.bind(lanes.iter().map(|lane| lane.1).collect::<Vec<_>>()).bind(lanes.iter().map(|lane| lane.2).collect::<Vec<_>>());
    let choose = choose.bind(lanes.iter().map(|lane| lane.3).collect::<Vec<_>>()).bind(most);
    let ids: Vec<i64> = choose.fetch_one(on).await.unwrap();
    ids.into_iter().map(|id| all.iter().position(|other| *other == id).unwrap()).collect()
}

/// Statement that quarantines jobs in reverse order, so that a job's position differs from its id.
const QUARANTINE: &str = "select queue.ensure_lane(q, 't', 100, true) from unnest('{default,other}'::text[]) q;
    update queue.ready r set lane = queue.lane_id(q, 't', 100, true), fair_id = null, crashes = 1, seq = 1000 - n.nth
    from unnest('{default,other}'::text[]) q, (select id, row_number() over (order by id) as nth from queue.ready) n
    where r.lane = queue.paired_lane(queue.lane_id(q, 't', 100, false)) and n.id = r.id";

#[tokio::test]
async fn of_each_key_the_first_free_jobs_are_chosen_in_order_up_to_the_lanes_maximum() {
    const FAIR_JOBS: LaneOf = ("default", true, i64::MIN, 12);
    let suspects = |begin| vec![("default", false, begin, 9)];
    let three = || vec![("other", false, 0, 1), ("default", true, i64::MIN, 2), ("default", false, 0, 3)];
    let two = || vec![("default", true, i64::MIN, 9), ("other", true, i64::MIN, 9)];
    let (of_two, a) = ((&["d", "d", "d"][..], &[][..]), ["a"; 12]);
    // Each case lists the quarantined and the fair jobs of two queues, the limit, the lanes and the maximum number of jobs. The locked
    // jobs and the expected jobs follow.
    for (name, (first, others), (fair, far), limit, lanes, most, held, expected) in [
        (
            "of a key with much room the first",
            (&[][..], &[][..]),
            (&a[..], &[][..]),
            "8",
            vec![FAIR_JOBS],
            12,
            &[][..],
            &[0, 1, 2, 3, 4, 5, 6, 7][..],
        ),
        ("no more than two", (&[], &[]), (&a, &[]), "8", vec![FAIR_JOBS], 2, &[], &[0, 1]),
        ("no more than five", (&[], &[]), (&a, &[]), "8", vec![FAIR_JOBS], 5, &[], &[0, 1, 2, 3, 4]),
        ("past those that others hold", (&[], &[]), (&a, &[]), "8", vec![FAIR_JOBS], 12, &[0, 5], &[1, 2, 3, 4, 6, 7, 8, 9]),
        ("suspects of each key", (&["a", "a", "b", "b", "c", "c"], &["d"; 3]), (&["e"], &[]), "1", suspects(0), 9, &[], &[5, 3, 1]),
        ("two suspects", (&["a", "a", "b", "b", "c", "c"], &["d"; 3]), (&["e"], &[]), "1", suspects(0), 2, &[], &[5, 3]),
        ("from a floor on", (&["a", "a", "b", "b", "c", "c"], &["d"; 3]), (&["e"], &[]), "1", suspects(995), 9, &[], &[4, 3, 1]),
        ("suspects that others hold", (&["a", "a", "b", "b", "c", "c"], &["d"; 3]), (&["e"], &[]), "1", suspects(0), 9, &[5], &[3, 1]),
        ("of lanes in their order", (&["a", "a", "a", "b"], &["c", "c"]), of_two, "9", three(), 9, &[], &[5, 6, 7, 3, 2, 1]),
        ("and in all", (&["a", "a", "a", "b"], &["c", "c"]), of_two, "9", three(), 4, &[], &[5, 6, 7, 3]),
        ("of a key in two lanes as in one", (&[], &[]), (&a[..4], &a[..4]), "5", two(), 9, &[], &[0, 1, 2, 3, 4]),
        ("and of its rate", (&[], &[]), (&a[..4], &a[..4]), "null, 5, '1 h'", two(), 9, &[], &[0, 1, 2, 3, 4]),
    ] {
        let (db, mut on, _) = with(0).await;
        fill(&mut on, "default", first.iter().copied()).await;
        fill(&mut on, "other", others.iter().copied()).await;
        on.run(QUARANTINE).await;
        fill(&mut on, "default", fair.iter().copied()).await;
        fill(&mut on, "other", far.iter().copied()).await;
        on.run(&format!("select queue.set_limit('type:t', {limit}, keyed => true)")).await;
        let all: Vec<i64> = on.all("select id from queue.ready order by id").await;
        let mut other = connect(&db.url).await;
        let mut open = other.begin().await.unwrap();
        for place in held {
            open.run(&format!("select from queue.ready where id = {} for update", all[*place])).await;
        }
        assert_eq!(chosen(&mut on, &all, &lanes, most).await, expected, "{name}");
        open.rollback().await.unwrap();
        db.finish().await;
    }
}

/// The lease is claimed before the limits exist. It also contains jobs of the queue `default`, which the limit `queue:other` does not
/// cover.
#[tokio::test]
async fn a_lease_holds_permits_of_an_unkeyed_limit_only_for_covered_jobs() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "other", ["a", "b"]).await;
    fill(&mut on, "default", ["a", "b", "c"]).await;
    let lease = fair_queues::claim_fair(&mut on, worker, i64::MIN, 9).await.unwrap().lease;
    fill(&mut on, "other", ["a"; 5]).await;
    on.run("select queue.set_limit('type:t', 9, keyed => true), queue.set_limit('queue:other', 3)").await;
    knows(&mut on, worker).await;
    let (other, limits) = ((worker, "other", i64::MIN), &["queue:other", "type:t"]);
    let ended = "select j.id from queue.job j where j.id = any ($1) and exists (select from queue.lane l where l.lane = j.lane and l.queue = 'default')";
    let ended: i64 = sqlx::query_scalar(ended).bind(lease.ids()).fetch_one(&mut on).await.unwrap();
    let none = claim_from(&mut on, other, limits, 0, &[lease.token]).await.unwrap();
    assert_eq!((lease.jobs.len(), none.ids.len()), (5, 0), "it counts in what runs");
    let job = *lease.jobs.iter().find(|job| job.id.0 == ended).unwrap();
    assert_eq!(settle(&mut on, &[JobVerdict { token: lease.token, job, verdict: "complete" }]).await.unwrap(), []);
    let next = claim_from(&mut on, other, limits, 9, &[lease.token]).await.unwrap();
    assert_eq!((next.of, next.closed.as_deref()), (counts([("a", 1)]), Some("full")), "two of its four are of that queue");
    db.finish().await;
}

#[tokio::test]
async fn a_lease_lists_its_jobs_by_id_in_any_order_of_rows() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "b", "c", "a", "b", "c", "a", "b", "c"]).await;
    let turned = "create temporary table turned as select * from queue.ready; delete from queue.ready;
      insert into queue.ready select * from turned order by seq desc; drop table turned";
    on.run(turned).await;
    on.run("select queue.set_limit('type:t', 9, keyed => true)").await;
    assert_eq!(claim(&mut on, worker, &["type:t"], 9, &[]).await.unwrap().ids.len(), 9);
    let listed: Vec<i64> = on.one("select ids from queue.lease").await;
    assert!(listed.is_sorted(), "{listed:?}");
    db.finish().await;
}
