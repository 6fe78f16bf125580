//! Tests the order of turns in single claims from fair queues.

use queue_core::JobId;
use sqlx::{Connection as _, PgConnection};
use tests::{
    Sql as _, TestDb,
    fair_queues::{Served, claim_fair, claim_fair_of, enqueue_fair, move_to_fair_lanes, plain_lanes},
    protocol::{register, settle, silence},
};

/// Enqueues the given number of jobs of each key. Returns the keys in turn order, each with its fair id and its jobs.
async fn fill(on: &mut PgConnection, counts: &[(&str, usize)]) -> Vec<(String, i64, Vec<JobId>)> {
    let mut filled = Vec::new();
    for (key, count) in counts {
        let fair_id: i64 = sqlx::query_scalar("select queue.fair_id_of($1)").bind(key).fetch_one(&mut *on).await.unwrap();
        let mut jobs = Vec::new();
        for _ in 0..*count {
            jobs.push(enqueue_fair(on, key).await.unwrap());
        }
        filled.push(((*key).to_owned(), fair_id, jobs));
    }
    filled.sort_by_key(|(_, fair_id, _)| *fair_id);
    filled
}

fn fair_ids_of(filled: &[(String, i64, Vec<JobId>)]) -> Vec<i64> {
    filled.iter().map(|(_, fair_id, _)| *fair_id).collect()
}

#[tokio::test]
async fn each_fair_queue_has_one_job_before_the_next_has_its_second() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    let filled = fill(&mut on, &[("a", 30), ("b", 2), ("c", 1), ("d", 2)]).await;
    let fair_ids = fair_ids_of(&filled);
    let first = claim_fair(&mut on, worker, i64::MIN, 4).await.unwrap();
    assert_eq!(first.fair_ids, fair_ids, "one each");
    assert_eq!(first.lease.ids(), filled.iter().map(|(.., jobs)| jobs[0]).collect::<Vec<_>>(), "the first of each");
    let next = claim_fair(&mut on, worker, fair_ids[1], 2).await.unwrap();
    let left: Vec<i64> = filled.iter().filter(|(key, ..)| key != "c").map(|(_, fair_id, _)| *fair_id).collect();
    let at = left.iter().position(|fair_id| *fair_id > fair_ids[1]).unwrap_or(0);
    let expected: Vec<i64> = (0..2).map(|n| left[(at + n) % left.len()]).collect();
    assert_eq!(next.fair_ids, expected, "after the fair queue named, and then from the lowest on");
    db.finish().await;
}

#[tokio::test]
async fn a_fair_queue_and_its_first_job_are_found_by_one_probe() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    let enqueue = "select queue.enqueue('do', '{\"act\":{\"Ok\":\"x\"}}', jsonb_build_object('fair', (n % 100)::text))
      from generate_series(0, 299) n";
    on.run(enqueue).await;
    let mut open = on.begin().await.unwrap();
    let probes = "select pg_stat_get_xact_numscans(indexrelid) from pg_index where indexrelid = 'queue.ready_fair'::regclass";
    let before: i64 = open.one(probes).await;
    assert_eq!(claim_fair(&mut open, worker, 1 << 60, 100).await.unwrap().lease.jobs.len(), 100);
    let after: i64 = open.one(probes).await;
    assert!(after - before <= 105, "{} probes for 100 fair queues", after - before);
    open.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_few_fair_queues_share_a_large_claim_and_take_what_others_leave() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    fill(&mut on, &[("a", 90), ("b", 40), ("c", 3), ("d", 1)]).await;
    let of = |served: &Served| {
        let mut counts: Vec<usize> = Vec::new();
        let mut fair_ids = served.fair_ids.clone();
        fair_ids.sort_unstable();
        for fair_id in fair_ids.chunk_by(|a, b| a == b) {
            counts.push(fair_id.len());
        }
        counts.sort_unstable();
        counts
    };
    let served = claim_fair(&mut on, worker, 0, 64).await.unwrap();
    assert_eq!(of(&served), [1, 3, 30, 30]);
    let turns = &served.fair_ids[..4];
    assert!((1..4).all(|n| !turns[..n].contains(&turns[n])), "in turn from the first on: {turns:?}");
    let rest = claim_fair(&mut on, worker, 0, 500).await.unwrap();
    assert_eq!(of(&rest), [10, 60], "all that is left");
    assert_eq!(db.count("select count(*) from queue.ready").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn fair_queues_of_any_lengths_are_emptied_by_a_large_claim() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    let keys: Vec<(String, usize)> = (0..12).map(|n| (format!("k{n}"), 1 << (n / 2))).collect();
    let counts: Vec<(&str, usize)> = keys.iter().map(|(key, count)| (key.as_str(), *count)).collect();
    fill(&mut on, &counts).await;
    let all: usize = counts.iter().map(|(_, count)| count).sum();
    let served = claim_fair(&mut on, worker, 0, i32::try_from(all).unwrap()).await.unwrap();
    let mut ids = served.lease.ids();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "each once");
    db.finish().await;
}

#[tokio::test]
async fn a_lease_from_fair_queues_is_like_any_other() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    fill(&mut on, &[("a", 3), ("b", 3)]).await;
    let plain = plain_lanes(&mut on).await.unwrap();
    let served = claim_fair(&mut on, worker, 0, 4).await.unwrap();
    let (ids, lane, attempts): (Vec<i64>, Option<i64>, Vec<i16>) =
        sqlx::query_as("select ids, lane, attempts from queue.lease").fetch_one(&mut on).await.unwrap();
    assert!(ids.is_sorted() && ids.len() == 4 && lane == Some(plain[0]) && attempts == [1; 4], "{ids:?} {lane:?} {attempts:?}");
    assert!(served.lease.jobs.iter().all(|job| job.lane == plain[0] && job.attempts == 1));
    let verdicts = ["complete", "retry", "snooze", "release"].iter().enumerate().map(|(n, verdict)| served.lease.one(n, verdict));
    assert_eq!(settle(&mut on, &verdicts.collect::<Vec<_>>()).await.unwrap(), []);
    assert_eq!(db.count(&format!("select count(*) from queue.scheduled where lane = {}", plain[0])).await, 2);
    assert_eq!(move_to_fair_lanes(&mut on, 100).await.unwrap(), 1, "what was given back goes to its fair queue");
    assert_eq!(db.count("select count(*) from queue.ready where fair_id is null").await, 0);
    let again = claim_fair(&mut on, worker, 0, 100).await.unwrap();
    assert_eq!(again.lease.jobs.len(), 3);
    assert!(again.lease.jobs.iter().all(|job| job.attempts == 1), "a release is no attempt");
    db.finish().await;
}

#[tokio::test]
async fn a_silent_worker_and_a_stranger_claim_nothing() {
    let (db, mut on) = TestDb::with_connection().await;
    let (worker, other) = (register(&mut on).await.unwrap(), register(&mut on).await.unwrap());
    fill(&mut on, &[("a", 3)]).await;
    silence(&mut on, worker).await.unwrap();
    for nobody in [worker, uuid::Uuid::new_v4()] {
        assert_eq!(claim_fair(&mut on, nobody, 0, 10).await.unwrap().lease.jobs, []);
    }
    assert_eq!(db.count("select count(*) from queue.lease").await, 0);
    assert_eq!(claim_fair(&mut on, other, 0, 10).await.unwrap().lease.jobs.len(), 3);
    db.finish().await;
}

#[tokio::test]
async fn lanes_are_claimed_in_the_given_order_up_to_each_share_and_the_total() {
    for (each, most, expected) in [([1, 2], 10, "baa"), ([5, 5], 2, "bb"), ([2, 4], 3, "bba")] {
        let (db, mut on, worker) = TestDb::with_worker().await;
        let enqueue = "select queue.enqueue('do', '{}', jsonb_build_object('queue', q, 'fair', f)) from unnest('{x,y,x}'::text[]) f, unnest('{a,b}'::text[]) q";
        on.run(enqueue).await;
        let lanes: Vec<i64> =
            on.all("select queue.lane_id(q, 'do', 100, false) from unnest('{b,a}'::text[]) with ordinality u (q, n) order by n").await;
        let served = claim_fair_of(&mut on, worker, &lanes, 0, &each, most).await.unwrap();
        let taken: String = served.lease.jobs.iter().map(|job| if job.lane == lanes[0] { 'b' } else { 'a' }).collect();
        assert_eq!(taken, expected, "{each:?} of {most}");
        let many = i64::from(expected.contains('a'));
        assert_eq!(db.count("select count(*) from queue.lease where lane is null").await, many, "a lease of many lanes names none");
        db.finish().await;
    }
}

#[tokio::test]
async fn a_fair_queue_with_a_weight_has_that_number_of_turns_in_its_type_only() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    let filled = fill(&mut on, &[("a", 40), ("b", 40), ("c", 40)]).await;
    let heavy = filled.iter().find(|(key, ..)| key == "b").unwrap().1;
    let count = |served: &Served| served.fair_ids.iter().filter(|fair_id| **fair_id == heavy).count();
    on.run("select queue.set_weight('another', 'b', 7), queue.set_weight('do', 'nobody', 9)").await;
    assert_eq!(count(&claim_fair(&mut on, worker, 0, 12).await.unwrap()), 4);
    on.run("select queue.set_weight('do', 'b', 2), queue.set_weight('do', 'b', 4)").await;
    assert_eq!(count(&claim_fair(&mut on, worker, 0, 12).await.unwrap()), 8, "four for one, from the next claim on");
    let few = claim_fair(&mut on, worker, filled[2].1, 3).await.unwrap();
    assert_eq!(few.fair_ids.len(), 3);
    on.run("select queue.set_weight('another', 'b', null)").await;
    on.run("select queue.set_weight('do', 'a', null)").await;
    assert_eq!(count(&claim_fair(&mut on, worker, 0, 12).await.unwrap()), 8, "only what is named loses its weight");
    on.run("select queue.set_weight('do', 'b', null)").await;
    assert_eq!(count(&claim_fair(&mut on, worker, 0, 12).await.unwrap()), 4);
    for wrong in ["'do', 'b', 0", "'do', 'b', 1001", "'d o', 'b', 1", "'do', null, 1", "null, 'b', 1"] {
        let statement = format!("select queue.set_weight({wrong})");
        assert!(sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut on).await.is_err(), "{wrong}");
    }
    db.finish().await;
}
