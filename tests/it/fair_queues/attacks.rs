//! Tests fair queues with killed workers, zombie workers, races and old snapshots.

use std::{collections::HashSet, time::Duration};

use queue_core::{JobId, JobState};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};
use tests::{
    Act, Do, Sql as _, TestDb, effects,
    fair_queues::{claim_fair, enqueue_fair, move_to_fair_lanes, plain_lanes},
    kill_three,
    protocol::{give_back, recover, register, settle, settle_leases, silence},
};

use super::key_of;

#[tokio::test]
async fn two_interleaved_claims_do_not_wait_and_share_no_job() {
    let (db, mut a, mut b) = TestDb::with_connections().await;
    let worker = register(&mut a).await.unwrap();
    for n in 0..40 {
        enqueue_fair(&mut a, &(n % 4).to_string()).await.unwrap();
    }
    let mut first = a.begin().await.unwrap();
    let mut held: HashSet<JobId> = claim_fair(&mut first, worker, 0, 8).await.unwrap().lease.ids().into_iter().collect();
    for _ in 0..3 {
        let claim = tokio::time::timeout(Duration::from_secs(30), claim_fair(&mut b, worker, 0, 8)).await;
        let second = claim.expect("it does not wait").unwrap();
        assert!(second.lease.ids().into_iter().all(|id| held.insert(id)), "each once");
        let mut fair_ids = second.fair_ids;
        fair_ids.sort_unstable();
        fair_ids.dedup();
        assert_eq!(fair_ids.len(), 4, "those behind the ones that are held have the turn");
    }
    assert_eq!(held.len(), 32);
    first.rollback().await.unwrap();
    assert_eq!(claim_fair(&mut a, worker, 0, 100).await.unwrap().lease.jobs.len(), 16, "given back by the rollback");
    db.finish().await;
}

#[tokio::test]
async fn concurrent_workers_claim_each_job_once() {
    let db = TestDb::new().await;
    let jobs = (0..3000).map(|_| Do::ok());
    let mut batch = queue_core::Batch::new();
    for (n, job) in jobs.enumerate() {
        batch.add(job).unwrap().fair((n % 100).to_string());
    }
    batch.enqueue(&db.pool).await.unwrap();
    let mut claims = Vec::new();
    for n in 0..6_i64 {
        let url = db.url.clone();
        claims.push(tokio::spawn(async move {
            let mut on = PgConnection::connect(&url).await.unwrap();
            let worker = register(&mut on).await.unwrap();
            let mut ids = Vec::new();
            loop {
                let served = claim_fair(&mut on, worker, n << 60, 7).await.unwrap();
                if served.lease.jobs.is_empty() {
                    return ids;
                }
                ids.extend(served.lease.ids());
            }
        }));
    }
    let mut all = Vec::new();
    for claim in claims {
        all.extend(claim.await.unwrap());
    }
    all.sort_unstable();
    let count = all.len();
    all.dedup();
    // A claimer gets no job and stops if other claimers have locked all remaining jobs.
    assert_eq!((all.len(), db.count("select count(*) from queue.ready").await), (count, 3000 - i64::try_from(count).unwrap()));
    assert_eq!(count, 3000);
    db.finish().await;
}

#[tokio::test]
async fn a_zombie_that_claimed_from_fair_queues_changes_nothing_and_its_jobs_continue() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    let job = enqueue_fair(&mut on, "a").await.unwrap();
    let zombie = claim_fair(&mut on, worker, 0, 1).await.unwrap();
    silence(&mut on, worker).await.unwrap();
    assert_eq!(recover(&mut on).await.unwrap(), 1);
    assert_eq!(settle(&mut on, &zombie.lease.all("complete")).await.unwrap().len(), 1, "refused");
    assert_eq!(settle_leases(&mut on, &[zombie.lease.token]).await.unwrap(), [zombie.lease.token]);
    let (solo, crashes): (bool, i16) = sqlx::query_as("select l.solo, r.crashes from queue.ready r join queue.lane l on l.lane = r.lane")
        .fetch_one(&mut on)
        .await
        .unwrap();
    assert!(solo && crashes == 1, "a quarantined job is tried separately, in any fair queue");
    assert_eq!(move_to_fair_lanes(&mut on, 10).await.unwrap(), 0, "and stays there");
    db.run_while(db.worker(), db.until(job, JobState::Completed)).await;
    db.finish().await;
}

#[tokio::test]
async fn a_claim_whose_reply_is_lost_returns_to_its_fair_queues_uncharged() {
    let (db, mut on, worker) = TestDb::with_worker().await;
    let jobs = [enqueue_fair(&mut on, "a").await.unwrap(), enqueue_fair(&mut on, "b").await.unwrap()];
    let lost = claim_fair(&mut on, worker, 0, 2).await.unwrap();
    assert_eq!(give_back(&mut on, lost.lease.token).await.unwrap(), 2);
    assert_eq!(move_to_fair_lanes(&mut on, 10).await.unwrap(), 2);
    for (job, key) in jobs.into_iter().zip(["a", "b"]) {
        assert_eq!(key_of(&mut on, job, &["a", "b"]).await.as_deref(), Some(key));
    }
    assert!(claim_fair(&mut on, worker, 0, 2).await.unwrap().lease.jobs.iter().all(|job| job.attempts == 1));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn jobs_waiting_under_one_key_cost_the_claims_of_others_nothing() {
    let (db, mut on) = TestDb::with_connection().await;
    on.run("set enable_seqscan = off; set plan_cache_mode = force_generic_plan; set jit = off").await;
    let worker = register(&mut on).await.unwrap();
    let fill = async |on: &mut PgConnection, key: &str, count: i32| {
        let sql = "with j as (insert into queue.job (id, lane, max_attempts, payload, fair_id)
               select queue.next_id(), queue.lane_id('default', 'do', 100, false), 3, '{\"act\":{\"Ok\":\"x\"}}', queue.fair_id_of($1) from generate_series(1, $2) returning id, lane, fair_id)
             insert into queue.ready (lane, seq, id, fair_id) select queue.paired_lane(lane), queue.next_id(), id, fair_id from j";
        sqlx::query(sql).bind(key).bind(count).execute(on).await.unwrap();
    };
    for n in 0..20 {
        enqueue_fair(&mut on, &n.to_string()).await.unwrap();
        fill(&mut on, &n.to_string(), 20).await;
    }
    let buffers = async |on: &mut PgConnection| {
        let lane = plain_lanes(on).await.unwrap()[0];
        let explain = format!(
            "explain (analyze, buffers, format json) select * from queue.claim_fair(gen_random_uuid(), '{worker}', array[{lane}], array[0], array[10], 10, 1000000)"
        );
        let plan: Value = sqlx::query_scalar(sqlx::AssertSqlSafe(explain)).fetch_one(on).await.unwrap();
        let plan = &plan[0]["Plan"];
        plan["Shared Hit Blocks"].as_i64().unwrap() + plan["Shared Read Blocks"].as_i64().unwrap()
    };
    for _ in 0..3 {
        buffers(&mut on).await;
    }
    let before = buffers(&mut on).await;
    fill(&mut on, "5", 100_000).await;
    buffers(&mut on).await;
    let after = buffers(&mut on).await;
    assert!(after <= before + before / 2 + 60, "{before} buffers before, {after} after");
    on.run("truncate queue.ready, queue.lease, queue.job").await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn workers_that_are_killed_while_they_serve_fair_queues_lose_no_job() {
    let db = TestDb::new().await;
    let mut batch = queue_core::Batch::new();
    for n in 0..120 {
        let act = if n % 10 == 0 { Act::FailUntil(2) } else { Act::Sleep(20) };
        batch.add(Do { act }).unwrap().fair((n % 12).to_string());
    }
    let jobs = batch.enqueue(&db.pool).await.unwrap();
    let unfinished = "select count(*) from queue.jobs where state in ('ready', 'scheduled', 'running')";
    kill_three(&db, env!("CARGO_BIN_EXE_test-worker"), ("select count(*) from effect", 5), (unfinished, 0)).await;
    for job in jobs {
        assert_eq!(db.state(job).await, Some(JobState::Completed));
        assert!(effects(&db.pool, job).await.unwrap() >= 1);
    }
    db.finish().await;
}
