//! The claim under limits by key, on connections of our own: what it takes of which key, what it passes over, and what that costs.

use std::{collections::BTreeMap, time::Duration};

use queue_core::Store;
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use tests::{
    TestDb,
    protocol::{register, settle_leases, silence},
};
use uuid::Uuid;

use super::statements::{connect, run, with};

const CLAIM: &str = include_str!("../../../queue-worker/sql/claim_keyed.sql");

/// What a claim took, and what it said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) token: Uuid,
    pub(super) ids: Vec<i64>,
    /// How many of each key.
    pub(super) of: BTreeMap<String, i64>,
    pub(super) reached: Option<i64>,
    pub(super) closed: Option<String>,
    pub(super) wait_ms: Option<f64>,
    pub(super) within_ms: Option<i64>,
    pub(super) floors: Option<Vec<i64>>,
}

/// Jobs of the type `t` in a queue, one for each of these keys.
pub(super) async fn fill(on: &mut PgConnection, queue: &str, keys: impl IntoIterator<Item = &str>) {
    for key in keys {
        let enqueue = "select queue.enqueue('t', jsonb_build_object('k', $1::text), jsonb_build_object('fair', $1, 'queue', $2::text))";
        sqlx::query(enqueue).bind(key).bind(queue).execute(&mut *on).await.unwrap();
    }
}

/// Claims from the lines of a queue, from after this line on.
pub(super) async fn claim_from(
    on: &mut PgConnection,
    (worker, queue, after): (Uuid, &str, i64),
    limits: &[&str],
    most: i32,
    freed: &[Uuid],
) -> sqlx::Result<Said> {
    claim_of(on, (worker, &[(queue, true)], after), limits, most, freed).await
}

/// The same of several queues, of which not all stand in lines: of those their suspects are claimed.
async fn claim_of(
    on: &mut PgConnection,
    who: (Uuid, &[(&str, bool)], i64),
    limits: &[&str],
    most: i32,
    freed: &[Uuid],
) -> sqlx::Result<Said> {
    claim_within(on, who, limits, most, freed, (0, None)).await
}

/// The same of a worker that needs so many ms until the jobs begin, and knows these floors.
pub(super) async fn claim_within(
    on: &mut PgConnection,
    (worker, queues, after): (Uuid, &[(&str, bool)], i64),
    limits: &[&str],
    most: i32,
    freed: &[Uuid],
    (slack, floors): (i64, Option<&[i64]>),
) -> sqlx::Result<Said> {
    let token = Uuid::new_v4();
    let gates: Vec<i64> =
        sqlx::query_scalar("select queue.hash(n) from unnest($1::text[]) n order by 1").bind(limits).fetch_all(&mut *on).await?;
    let (names, in_lines): (Vec<&str>, Vec<bool>) = queues.iter().copied().unzip();
    let lanes: Vec<i64> = sqlx::query_scalar(
        "select queue.lane_id(q, 't', 100, not l) from unnest($1::text[], $2::bool[]) with ordinality u (q, l, n) order by n",
    )
    .bind(names)
    .bind(&in_lines)
    .fetch_all(&mut *on)
    .await?;
    let rows = sqlx::query(Store::default().sql(CLAIM))
        .bind(token)
        .bind(worker)
        .bind(gates)
        .bind(&lanes)
        .bind(in_lines.iter().map(|in_lines| if *in_lines { after } else { 0 }).collect::<Vec<_>>())
        .bind(&in_lines)
        .bind(vec![most; lanes.len()])
        .bind(most)
        .bind(freed)
        .bind(slack)
        .bind(floors)
        .fetch_all(&mut *on)
        .await?;
    let (ids, of) = (Vec::new(), BTreeMap::new());
    let mut said = Said { token, ids, of, reached: None, closed: None, wait_ms: None, within_ms: None, floors: None };
    for row in rows {
        match (row.get::<Option<i64>, _>("id"), row.get::<Option<i64>, _>("lane")) {
            (Some(id), _) => said.ids.push(id),
            (None, Some(_)) => said.reached = row.get("line"),
            _ => {
                (said.closed, said.wait_ms, said.within_ms) = (row.get("closed"), row.get("wait_ms"), row.get("within_ms"));
                said.floors = row.get("permit_floors");
            }
        }
    }
    let of = "select coalesce(payload ->> 'k', ''), count(*) from queue.job where id = any ($1) group by 1";
    said.of = sqlx::query_as(of).bind(&said.ids).fetch_all(&mut *on).await?.into_iter().collect();
    Ok(said)
}

pub(super) async fn claim(on: &mut PgConnection, worker: Uuid, limits: &[&str], most: i32, freed: &[Uuid]) -> sqlx::Result<Said> {
    claim_from(on, (worker, "default", 0), limits, most, freed).await
}

pub(super) fn counts<const N: usize>(of: [(&str, i64); N]) -> BTreeMap<String, i64> {
    of.into_iter().map(|(key, count)| (key.to_owned(), count)).collect()
}

/// What is held of each key, by leases and as the limit sees it.
async fn held(db: &TestDb) -> i64 {
    assert_eq!(db.count("select count(*) from queue.permit where n <> cardinality(ids) or n <> cardinality(lines)").await, 0);
    db.count("select coalesce(sum(n), 0)::bigint from queue.permit").await
}

#[tokio::test]
async fn of_each_key_a_claim_takes_no_more_than_there_are_permits_and_one_that_waits_sees_what_the_first_took() {
    let (db, mut one, worker) = with(0).await;
    let mut two = connect(&db.url).await;
    fill(&mut one, "default", ["a"; 6].into_iter().chain(["b"; 6]).chain(["c"; 2])).await;
    run(&mut one, "select queue.set_limit('type:t', 3, keyed => true)").await;
    let limits = &["type:t"];
    let mut open = one.begin().await.unwrap();
    let first = claim(&mut open, worker, limits, 4, &[]).await.unwrap();
    assert_eq!((first.ids.len(), first.closed.as_deref()), (4, None));
    let error = claim(&mut two, worker, limits, 9, &[]).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("55P03"), "it waits for the first one");
    open.commit().await.unwrap();
    let second = claim(&mut two, worker, limits, 20, &[]).await.unwrap();
    let mut all = first.of.clone();
    for (key, count) in &second.of {
        *all.entry(key.clone()).or_default() += count;
    }
    assert_eq!(all, counts([("a", 3), ("b", 3), ("c", 2)]));
    assert_eq!((second.closed.as_deref(), held(&db).await), (Some("lines"), 8));
    // Permits come back with the leases, each to its key.
    settle_leases(&mut one, &[first.token]).await.unwrap();
    let third = claim(&mut two, worker, limits, 20, &[first.token]).await.unwrap();
    let freed: BTreeMap<String, i64> = first.of.into_iter().filter(|(key, _)| key != "c").collect();
    assert_eq!(third.of, freed);
    // A part of a lease that is over gives back what it held, once somebody reads it.
    let cut = "with cut as (select token, ids[1] as id from queue.lease order by cardinality(ids) desc limit 1)
        update queue.lease l set ids = ids[2:], attempts = attempts[2:], crashes = crashes[2:] from cut where cut.token = l.token";
    let back = "insert into queue.ready (lane, seq, id, line)
        select queue.twin_of(j.lane), queue.next_id(), j.id, j.line from queue.job j
        where not exists (select from queue.lease l where j.id = any (l.ids)) and not exists (select from queue.ready r where r.id = j.id)
          and not exists (select from queue.done_many d where j.id = any (d.ids))";
    run(&mut one, cut).await;
    run(&mut one, back).await;
    assert!(claim(&mut two, worker, limits, 20, &[]).await.unwrap().ids.is_empty(), "nobody has said so yet");
    let before = held(&db).await;
    run(&mut one, "update queue.gate set read_at = '-infinity'").await;
    let found = claim(&mut two, worker, limits, 20, &[]).await.unwrap().ids.len()
        + claim(&mut two, worker, limits, 20, &[]).await.unwrap().ids.len();
    assert!(found <= 1 && held(&db).await == before - 1 + found as i64);
    db.finish().await;
}

#[tokio::test]
async fn a_limit_that_becomes_one_by_key_waits_until_all_know_and_counts_in_what_runs_by_its_key() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a"; 5].into_iter().chain(["b"; 5])).await;
    run(&mut on, "select queue.enqueue('t', '{}') from generate_series(1, 3)").await;
    // Those without a key run freely.
    let lease = tests::protocol::claim(&mut on, worker, 2).await.unwrap();
    assert_eq!(lease.ids().len(), 2);
    let of_lines = tests::lines::claim_lines(&mut on, worker, 0, 2).await.unwrap();
    assert_eq!(of_lines.lines.len(), 2, "one of each key");
    tests::lines::line_up(&mut on, 100).await.unwrap();
    run(&mut on, "select queue.set_limit('type:t', 2, keyed => true)").await;
    let some = claim(&mut on, worker, &["type:t"], 20, &[]).await.unwrap();
    assert_eq!(some.of, counts([("a", 1), ("b", 1)]), "two jobs without a key run");
    run(&mut on, "select queue.set_limit('type:t', 2, keyed => false)").await;
    let other = register(&mut on).await.unwrap();
    let none = claim(&mut on, worker, &["type:t"], 20, &[]).await.unwrap();
    assert_eq!(none.closed.as_deref(), Some("unknown"), "another worker may go by keys still");
    sqlx::query("update queue.worker set paused_seen = (select last_value from queue.pause_seq) where id = $1")
        .bind(other)
        .execute(&mut on)
        .await
        .unwrap();
    let none = claim(&mut on, worker, &["type:t"], 20, &[]).await.unwrap();
    assert_eq!((none.ids.len(), none.closed.as_deref()), (0, Some("full")), "six run, of whatever key");
    run(&mut on, "select queue.unset_limit('type:t')").await;
    let none = claim(&mut on, worker, &["type:t"], 20, &[]).await.unwrap();
    assert_eq!(none.closed.as_deref(), Some("gone"));
    db.finish().await;
}

#[tokio::test]
async fn what_is_said_of_a_key_goes_first_up_and_down_and_ends() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a"; 9].into_iter().chain(["b"; 9]).chain(["c"; 9])).await;
    run(&mut on, "select queue.set_limit('type:t', 2, keyed => true)").await;
    run(
        &mut on,
        "select queue.set_limit_key('type:t', 'a', 4), queue.set_limit_key('type:t', 'b', 0), queue.set_limit_key('other', 'c', 9)",
    )
    .await;
    let first = claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
    assert_eq!(first.of, counts([("a", 4), ("c", 2)]));
    run(&mut on, "select queue.set_limit_key('type:t', 'b', 5), queue.set_limit_key('type:t', 'a', 1)").await;
    let second = claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
    assert_eq!(second.of, counts([("b", 5)]), "what runs goes on");
    settle_leases(&mut on, &[first.token]).await.unwrap();
    let third = claim(&mut on, worker, &["type:t"], 50, &[first.token]).await.unwrap();
    assert_eq!(third.of, counts([("a", 1), ("c", 2)]));
    run(&mut on, "select queue.set_limit_key('type:t', 'a', null), queue.set_limit_key('type:t', 'b')").await;
    let fourth = claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
    assert_eq!(fourth.of, counts([("a", 1)]), "two of each again");
    // Nothing for keys but those named.
    run(&mut on, "select queue.set_limit('type:t', 0), queue.set_limit_key('type:t', 'c', 4)").await;
    let fifth = claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
    assert_eq!(fifth.of, counts([("c", 2)]));
    db.finish().await;
}

#[tokio::test]
async fn jobs_without_a_key_have_one_in_common_and_limits_by_key_go_with_others() {
    let (db, mut on, worker) = with(5).await;
    fill(&mut on, "default", ["a"; 5].into_iter().chain(["b"; 5])).await;
    tests::lines::line_up(&mut on, 100).await.unwrap();
    run(
        &mut on,
        "select queue.set_limit('type:t', 2, keyed => true), queue.set_limit('queue:default', 5), queue.set_limit('x', 3, keyed => true)",
    )
    .await;
    let limits = &["type:t", "queue:default", "x"];
    let first = claim(&mut on, worker, limits, 50, &[]).await.unwrap();
    assert_eq!((first.ids.len(), first.closed.as_deref()), (5, Some("full")), "the queue has five");
    assert!(first.of.values().all(|count| *count <= 2), "{first:?}");
    run(&mut on, "select queue.set_limit('queue:default', 9)").await;
    let second = claim(&mut on, worker, limits, 50, &[]).await.unwrap();
    assert_eq!((second.ids.len(), second.closed.as_deref()), (1, Some("lines")), "two of each of three keys");
    assert_eq!(db.count("select count(*) from queue.permit").await, 6, "of every limit");
    silence(&mut on, worker).await.unwrap();
    settle_leases(&mut on, &[first.token, second.token]).await.unwrap();
    run(&mut on, "update queue.gate set read_at = '-infinity'").await;
    assert!(claim(&mut on, worker, limits, 50, &[]).await.unwrap().ids.is_empty(), "who is silent takes none");
    let other = register(&mut on).await.unwrap();
    assert!(claim(&mut on, Uuid::new_v4(), limits, 50, &[]).await.unwrap().ids.is_empty());
    sqlx::query("update queue.worker set paused_seen = (select last_value from queue.pause_seq) where id = $1")
        .bind(other)
        .execute(&mut on)
        .await
        .unwrap();
    run(&mut on, "update queue.gate set read_at = '-infinity'").await;
    assert_eq!(claim(&mut on, other, limits, 50, &[]).await.unwrap().ids.len(), 6);
    db.finish().await;
}

#[tokio::test]
async fn of_a_key_in_several_lanes_a_claim_takes_no_more_than_in_one() {
    let (db, mut on, worker) = with(0).await;
    let lanes = &[("default", true), ("other", true), ("default", false), ("other", false)];
    run(&mut on, "select queue.meet_lane(q, 't', 100, true) from unnest(array['default', 'other']) q").await;
    for limit in ["select queue.set_limit('type:t', 3, keyed => true)", "select queue.set_limit('type:t', null, 3, '1 h', keyed => true)"] {
        for queue in ["default", "other"] {
            fill(&mut on, queue, ["a"; 4].into_iter().chain(["b"; 4])).await;
        }
        // Half of them are suspected of having ended a process.
        let suspect = "update queue.ready set lane = queue.lane_id(q, 't', 100, true), line = null, crashes = 1
            from unnest(array['default', 'other']) q where lane = queue.twin_of(queue.lane_id(q, 't', 100, false)) and seq % 2 = 0";
        run(&mut on, suspect).await;
        run(&mut on, limit).await;
        let some = claim_of(&mut on, (worker, lanes, 0), &["type:t"], 50, &[]).await.unwrap();
        assert_eq!(some.of, counts([("a", 3), ("b", 3)]), "of {limit}");
        let none = claim_of(&mut on, (worker, lanes, 0), &["type:t"], 50, &[]).await.unwrap();
        assert_eq!((none.ids.len(), none.closed.as_deref()), (0, Some("lines")));
        settle_leases(&mut on, &[some.token]).await.unwrap();
        assert!(claim(&mut on, worker, &["type:t"], 0, &[some.token]).await.unwrap().ids.is_empty());
        assert!(held(&db).await == 0);
    }
    db.finish().await;
}

#[tokio::test]
async fn few_keys_with_much_room_share_a_claim_and_in_turns() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a"; 40].into_iter().chain(["b"; 40]).chain(["c"; 3])).await;
    run(&mut on, "select queue.set_limit('type:t', 30, keyed => true), queue.set_limit_key('type:t', 'b', 12)").await;
    let some = claim(&mut on, worker, &["type:t"], 100, &[]).await.unwrap();
    assert_eq!((some.of, some.closed.as_deref()), (counts([("a", 30), ("b", 12), ("c", 3)]), Some("lines")));
    run(&mut on, "select queue.set_limit('type:t', 60, keyed => true), queue.set_limit_key('type:t', 'b', null)").await;
    let more = claim(&mut on, worker, &["type:t"], 20, &[]).await.unwrap();
    assert_eq!(more.of, counts([("a", 10), ("b", 10)]), "each has its share");
    let rest = claim(&mut on, worker, &["type:t"], 100, &[]).await.unwrap();
    assert_eq!((rest.of, rest.closed), (counts([("b", 18)]), None));
    assert_eq!(held(&db).await, 83);
    db.finish().await;
}

#[tokio::test]
async fn who_found_no_room_of_a_key_waits_without_its_gate_and_is_told_of_that_key_and_no_other() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "b"]).await;
    fill(&mut on, "other", ["a"]).await;
    run(&mut on, "select queue.set_limit('shared', 1, keyed => true)").await;
    let first = claim(&mut on, worker, &["shared"], 1, &[]).await.unwrap();
    let second = claim(&mut on, worker, &["shared"], 1, &[]).await.unwrap();
    let (of_a, of_b) = if first.of.contains_key("a") { (first, second) } else { (second, first) };
    let waits = (worker, "other", 0);
    let none = claim_from(&mut on, waits, &["shared"], 5, &[]).await.unwrap();
    assert_eq!((none.ids.len(), none.closed.as_deref()), (0, Some("lines")));
    assert_eq!(db.count("select cardinality(lines)::bigint from queue.gate").await, 1);
    // Now it is known, and looks again without the gate.
    let mut holder = connect(&db.url).await;
    let mut open = holder.begin().await.unwrap();
    open.execute("select from queue.gate for update").await.unwrap();
    let none = claim_from(&mut on, waits, &["shared"], 5, &[]).await.unwrap();
    assert_eq!((none.ids.len(), none.closed.as_deref()), (0, Some("lines")));
    open.rollback().await.unwrap();
    let mut listener = db.listen("wake").await;
    let mut told = async || {
        let mut told = 0;
        while let Ok(Ok(one)) = tokio::time::timeout(Duration::from_millis(500), listener.recv()).await {
            told += i32::from(one.payload().starts_with("!room"));
        }
        told
    };
    settle_leases(&mut on, &[of_b.token, of_a.token]).await.unwrap();
    claim(&mut on, worker, &["shared"], 0, &[of_b.token]).await.unwrap();
    assert_eq!(told().await, 0, "nobody waits for that key");
    claim(&mut on, worker, &["shared"], 0, &[of_a.token]).await.unwrap();
    claim(&mut on, worker, &["shared"], 0, &[of_a.token]).await.unwrap();
    assert_eq!(told().await, 1, "once");
    let some = claim_from(&mut on, waits, &["shared"], 5, &[]).await.unwrap();
    assert_eq!((some.of, some.closed), (counts([("a", 1)]), None));
    db.finish().await;
}

#[tokio::test]
async fn a_turn_is_as_many_as_a_key_may_have_at_once_and_one_of_each_is_taken_past_what_others_hold() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a", "a", "a", "b", "b", "b", "c"]).await;
    run(&mut on, "select queue.set_limit('type:t', 3, keyed => true)").await;
    let mut open = on.begin().await.unwrap();
    let some = claim_from(&mut open, (worker, "default", i64::MIN), &["type:t"], 4, &[]).await.unwrap();
    assert!(some.of.values().any(|count| *count == 3), "three of one, if it has them: {some:?}");
    open.rollback().await.unwrap();
    run(&mut on, "select queue.set_limit('type:t', 1, keyed => true)").await;
    let mut holder = connect(&db.url).await;
    let mut open = holder.begin().await.unwrap();
    let first = "select id from queue.ready where line = queue.line_id('a') order by seq limit 1 for update";
    let held: i64 = sqlx::query_scalar(first).fetch_one(&mut *open).await.unwrap();
    let some = claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
    assert_eq!((some.ids.len(), &some.of), (3, &counts([("a", 1), ("b", 1), ("c", 1)])));
    assert!(!some.ids.contains(&held));
    open.rollback().await.unwrap();
    let listed = "select count(distinct id) from queue.lease cross join lateral unnest(ids) id";
    assert_eq!((db.count(listed).await, self::held(&db).await), (3, 3));
    db.finish().await;
}
