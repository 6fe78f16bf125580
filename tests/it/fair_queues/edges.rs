//! Tests fair queueing one statement at a time: notifications of an enqueue, counts, and an order that does not depend on the physical
//! order of rows.

use std::time::Duration;

use queue_core::JobId;
use sqlx::PgConnection;
use tests::{
    Sql as _, TestDb,
    fair_queues::{claim_fair, enqueue_fair},
    protocol::sleep,
};

/// Enqueues `each` jobs for each of `keys` keys, one job per key in each round. Returns the fair id and the jobs of each key, in turn
/// order.
async fn fill(on: &mut PgConnection, keys: usize, each: usize) -> Vec<(i64, Vec<JobId>)> {
    let mut filled = Vec::new();
    for key in 0..keys {
        let fair_id: i64 = sqlx::query_scalar("select queue.fair_id_of($1)").bind(key.to_string()).fetch_one(&mut *on).await.unwrap();
        filled.push((fair_id, Vec::new()));
    }
    for _ in 0..each {
        for (key, (_, jobs)) in filled.iter_mut().enumerate() {
            jobs.push(enqueue_fair(on, &key.to_string()).await.unwrap());
        }
    }
    filled.sort_unstable_by_key(|(fair_id, _)| *fair_id);
    filled
}

#[tokio::test]
async fn a_sleeping_worker_is_notified_of_a_fair_job() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    // The lane must exist already, because its creation would send a notification.
    enqueue_fair(&mut on, "a").await.unwrap();
    let mut listener = db.listen("wake").await;
    sleep(&mut on, worker, &["default"]).await.unwrap();
    enqueue_fair(&mut on, "a").await.unwrap();
    let notification = tokio::time::timeout(Duration::from_secs(10), listener.recv()).await.expect("a worker is notified").unwrap();
    assert_eq!(notification.payload(), "default");
    db.finish().await;
}

#[tokio::test]
async fn a_weight_is_stored_with_the_fair_queue_of_its_key() {
    let db = TestDb::new().await;
    let wrong = "insert into queue.weight (job_type, fair_id, fair, weight) values ('do', queue.fair_id_of('b'), 'a', 2)";
    let refused = sqlx::query(wrong).execute(&db.pool).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().constraint(), Some("weight_fair_id_is_its_hash"));
    db.finish().await;
}

#[tokio::test]
async fn attempts_are_counted_up_to_the_maximum_of_a_smallint() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    enqueue_fair(&mut on, "a").await.unwrap();
    on.run("update queue.ready set attempts = 32767").await;
    assert_eq!(claim_fair(&mut on, worker, 0, 1).await.unwrap().lease.jobs[0].attempts, 32767);
    db.finish().await;
}

#[tokio::test]
async fn a_large_payload_is_omitted_and_a_job_without_one_is_reported() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    for (fair, payload) in [("a", "{}"), ("b", "{\"long\": \"more than ten bytes\"}"), ("c", "{}")] {
        let enqueue = "select queue.enqueue('do', $2::text::jsonb, jsonb_build_object('fair', $1::text))";
        sqlx::query(enqueue).bind(fair).bind(payload).execute(&mut on).await.unwrap();
    }
    on.run("delete from queue.job where fair_id = queue.fair_id_of('c')").await;
    let claim = "select t.payload, t.max_attempts::integer
      from queue.claim_fair(gen_random_uuid(), $1, array[queue.lane_id('default', 'do', 100, false)], array[0], array[9], 9, 10) t
      order by t.id";
    let claimed: Vec<(Option<String>, Option<i32>)> = sqlx::query_as(claim).bind(worker).fetch_all(&mut on).await.unwrap();
    assert_eq!((claimed.len(), claimed[0].0.as_deref(), claimed[1].0.as_deref()), (3, Some("{}"), None), "{claimed:?}");
    assert!(claimed[1].1.is_some() && claimed[2] == (None, None), "{claimed:?}");
    on.run("delete from queue.lease").await;
    on.run("delete from queue.job").await;
    db.finish().await;
}

/// Each key gets one job per turn, or more if the key has a weight.
#[tokio::test]
async fn a_weight_counts_where_there_are_as_many_fair_queues_as_jobs_wanted() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    let filled = fill(&mut on, 5, 4).await;
    sqlx::query("select queue.set_weight('do', n::text, 3) from generate_series(0, 4) n where queue.fair_id_of(n::text) = $1")
        .bind(filled[0].0)
        .execute(&mut on)
        .await
        .unwrap();
    let served = claim_fair(&mut on, worker, i64::MIN, 5).await.unwrap();
    assert_eq!(served.fair_ids, [filled[0].0, filled[0].0, filled[0].0, filled[1].0, filled[2].0]);
    let served = claim_fair(&mut on, worker, filled[2].0, 2).await.unwrap();
    assert_eq!(served.fair_ids, [filled[3].0, filled[4].0], "the others have one each");
    db.finish().await;
}

#[tokio::test]
async fn the_order_of_a_fair_queue_is_not_that_of_its_rows() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    let filled = fill(&mut on, 2, 6).await;
    let turned = "create temporary table turned as select * from queue.ready; delete from queue.ready;
      insert into queue.ready select * from turned order by seq desc; drop table turned;
      set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off; set enable_seqscan = on";
    on.run(turned).await;
    // The first claim takes one job of each key, and the second claim takes two jobs of each key.
    for (most, from) in [(2, 0), (4, 1)] {
        let taken = claim_fair(&mut on, worker, i64::MIN, most).await.unwrap();
        let mut expected: Vec<JobId> = filled.iter().flat_map(|(_, jobs)| jobs[from..from + most as usize / 2].to_vec()).collect();
        let mut ids = taken.lease.ids();
        expected.sort_unstable();
        ids.sort_unstable();
        assert_eq!(ids, expected);
        let listed: Vec<JobId> = on.one("delete from queue.lease returning ids").await;
        assert!(listed.is_sorted(), "a lease lists its jobs by id: {listed:?}");
    }
    on.run("delete from queue.job j where not exists (select from queue.ready r where r.id = j.id)").await;
    db.finish().await;
}
