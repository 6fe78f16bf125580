//! Tests that unused lanes are deleted while producers are active, and are created again.

mod attacks;
mod steps;

use std::time::Duration;

use queue_core::{Job as _, JobState};
use queue_worker::{Config, Worker};
use sqlx::PgConnection;
use tests::{Act, Do, Sql as _, TestDb, eventually, lanes};

fn quick() -> Do {
    Do::ok()
}

/// Counts the lane rows of the queue.
async fn rows(db: &TestDb, queue: &str) -> i64 {
    db.count(&format!("select count(*) from queue.lane where queue = '{queue}'")).await
}

/// Deletes the history of all finished jobs.
async fn forget_history(on: &mut PgConnection) {
    let statement = "with d as (delete from queue.done returning id), m as (delete from queue.done_many returning ids)
      delete from queue.job where id = any (array(select id from d union all select unnest(ids) from m))";
    on.run(statement).await;
}

/// Runs all steps that delete unused lanes. In production, a worker waits a minute between the steps. Returns the number of deleted
/// lanes.
async fn forget(on: &mut PgConnection) -> i64 {
    lanes::leave_lanes(on, -1.0, 1000).await.unwrap();
    let mut gone = 0;
    for _ in 0..2 {
        // A background process of the server may hold a snapshot, so the step is retried.
        let mut unseen = Vec::new();
        for _ in 0..200 {
            unseen = lanes::unseen_lanes(on).await.unwrap();
            if !unseen.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        lanes::pass_lanes(on, &unseen, 1000).await.unwrap();
        gone = lanes::replaced_lanes(on, 1000).await.unwrap() + lanes::walk_lanes(on).await.unwrap();
    }
    gone
}

#[tokio::test]
#[ignore = "deep"]
async fn an_unused_lane_is_deleted_and_a_running_worker_serves_it_when_it_is_created_again() {
    let (db, mut on) = TestDb::with_connection().await;
    let mut config = Config::default();
    config.poll_interval = Duration::from_millis(200);
    db.run_while(Worker::new(db.pool.clone()).config(config).register::<Do>(), async {
        for round in 0..3 {
            let job = quick().enqueue(&db.pool).queue("once").await.unwrap().id();
            db.until(job, JobState::Completed).await;
            forget_history(&mut on).await;
            eventually("the lane goes", async || {
                forget(&mut on).await;
                rows(&db, "once").await == 0
            })
            .await;
            // The restored lane has a transaction id (`born`) that this server has not assigned yet, so only a query for all lanes finds
            // it. By the time of that query, the worker has also noticed that the lane of the queue `once` was deleted.
            let number = 4_000_000_000_000_i64 + round;
            let restored = format!(
                "with l as (
                   insert into queue.lane (lane, queue, job_type, priority, solo, born)
                   values (queue.lane_id('restored{round}', 'do', 100, false), 'restored{round}', 'do', 100, false, '{number}'::xid8)
                   returning lane
                 ), j as (
                   insert into queue.job (id, lane, max_attempts, payload)
                   select queue.next_id(), lane, 3, '{{\"act\":{{\"Ok\":\"\"}}}}' from l returning id, lane
                 )
                 insert into queue.ready (lane, seq, id) select lane, id, id from j returning id"
            );
            let restored_job = queue_core::JobId(db.count(&restored).await);
            db.until(restored_job, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn housekeeping_deletes_unused_lanes_and_those_with_jobs_stay() {
    let (db, mut on) = TestDb::with_connection().await;
    let mut finished = Vec::new();
    for queue in ["gone", "used"] {
        finished.push((quick().enqueue(&db.pool).queue(queue).await.unwrap().id(), JobState::Completed));
    }
    quick().enqueue(&db.pool).queue("waits").after(Duration::from_hours(1000)).await.unwrap();
    let dead = Do { act: Act::Terminal("x".to_owned()) };
    finished.push((dead.enqueue(&db.pool).queue("dead").await.unwrap().id(), JobState::Dead));
    db.run_while(db.worker(), async {
        for (job, state) in finished {
            db.until(job, state).await;
        }
    })
    .await;
    forget_history(&mut on).await;
    // The statement that deletes flow nodes is the last statement of a maintenance scan. It runs even if there is no row to delete.
    let note_pruned = "create table pruned ();
      create function note_pruned() returns trigger language plpgsql as 'begin insert into public.pruned default values; return null; end';
      create trigger note_pruned after delete on queue.node for each statement execute function note_pruned()";
    on.run(note_pruned).await;
    // Each start of a worker runs one step.
    for step in ["leaving", "passed", "above"] {
        on.run("update queue.lane set since = now() - interval '30 days'").await;
        if step == "passed" {
            quick().enqueue(&db.pool).queue("used").await.unwrap();
        }
        let left = format!("select count(*) from queue.lane where queue <> 'used' and {step} is null");
        let stepped = async || db.count(&left).await == 0 && (step != "above" || rows(&db, "gone").await == 0);
        // Transactions in other databases may delay the step, and the next scan is a minute later. Restarting the worker retries the step
        // immediately.
        let mut starts = 0;
        while !stepped().await {
            starts += 1;
            assert!(starts < 60, "it does not take the step to `{step}`");
            on.run("delete from pruned").await;
            db.run_while(db.worker(), async {
                db.until_count("select count(*) from pruned", 1).await;
            })
            .await;
        }
    }
    let left = sqlx::query_scalar::<_, String>("select distinct queue from queue.lane order by queue");
    assert_eq!(left.fetch_all(&mut on).await.unwrap(), ["dead", "used", "waits"]);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_queue_with_a_capacity_keeps_it_when_its_lane_is_created_again() {
    let (db, mut on) = TestDb::with_connection().await;
    on.run("select queue.enqueue('do', '{}')").await;
    on.run("delete from queue.ready; delete from queue.job").await;
    lanes::leave_lanes(&mut on, -1.0, 10).await.unwrap();
    // `set_capacity` marks only the lane rows that are not leaving, so the existing row is not marked as having a capacity.
    on.run("select queue.set_capacity('default', 2)").await;
    let full = "select count(*) from generate_series(1, 5) n cross join lateral queue.try_enqueue('do', jsonb_build_object('n', n)) e where e.id is null";
    assert_eq!(db.count(full).await, 3);
    on.run("delete from queue.ready; delete from queue.job").await;
    eventually("the lane goes", async || {
        forget(&mut on).await;
        rows(&db, "default").await == 0
    })
    .await;
    assert_eq!(db.count(full).await, 3);
    assert_eq!(db.count("select capacity from queue.capacity").await, 2);
    db.finish().await;
}
