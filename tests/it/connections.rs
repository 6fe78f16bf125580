//! Tests how many connections a worker uses, and that hanging statements block no claims or verdicts even if the worker has few
//! connections.

use std::time::Duration;

use queue_core::{Handler, Job as _, JobResult, JobState, durable::Durable, job, schedule::Schedule};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use sqlx::Connection as _;
use tests::{Act, Do, TestDb, eventually, within};

/// Durable job with an ordering key, progress, logs and a step, so that its attempts use many loops of the worker.
#[job(name = "connections_all", durable, key = self.key)]
#[derive(Serialize, Deserialize)]
struct All {
    key: i32,
}

impl Handler for All {
    async fn run(self, cx: &Durable) -> JobResult {
        cx.progress(0.5);
        tracing::info!("at work");
        let _: i32 = cx.step("one", async { Ok::<_, std::io::Error>(1) }).await?;
        Ok(())
    }
}

const OWN: &str = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'queue-worker %'";

fn worker(db: &TestDb, connections: usize) -> Worker {
    let mut config = Config::default();
    (config.connections, config.grace) = (connections, Duration::from_secs(2));
    Worker::new(db.pool.clone()).config(config).register::<Do>().register::<All>()
}

/// Waits until `jobs` jobs are completed. Returns the maximum number of worker connections during the wait.
async fn most_until_all_are_over(db: &TestDb, jobs: i64) -> i64 {
    let mut most = 0;
    within(Duration::from_mins(1), "all are completed", async || {
        most = most.max(db.count(OWN).await);
        db.count("select count(*) from queue.jobs where state = 'completed'").await >= jobs
    })
    .await;
    most
}

/// Creates a schedule that fires every second, and enqueues `many` jobs of each of two types.
async fn enqueue_each_kind(db: &TestDb, many: i32) {
    let every = Schedule::every(Duration::from_secs(1)).job(&quick());
    queue_core::Queue::new(&db.pool).schedule("each_second").create(&every).await.unwrap();
    for key in 0..many {
        All { key: key % 3 }.enqueue(&db.pool).await.unwrap();
        quick().enqueue(&db.pool).expires_in(Duration::from_hours(1)).await.unwrap();
    }
}

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

#[tokio::test]
async fn a_worker_never_has_more_than_four_connections() {
    let db = TestDb::new().await;
    let most = db
        .run_while(worker(&db, 4), async {
            enqueue_each_kind(&db, 60).await;
            most_until_all_are_over(&db, 120).await
        })
        .await;
    assert!((3..=4).contains(&most), "{most}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_that_was_busy_has_four_connections_again_after_a_while() {
    let db = TestDb::new().await;
    let mut on = sqlx::PgConnection::connect(&db.url).await.unwrap();
    db.run_while(worker(&db, 12), async {
        enqueue_each_kind(&db, 20).await;
        let mut held = on.begin().await.unwrap();
        sqlx::raw_sql(HELD).execute(&mut *held).await.unwrap();
        eventually("a statement that waits for a lock has its own connection", async || db.count(OWN).await > 5).await;
        assert!(db.count(OWN).await <= 12);
        held.rollback().await.unwrap();
        most_until_all_are_over(&db, 40).await;
        queue_core::Queue::new(&db.pool).schedule("each_second").delete().await.unwrap();
        within(Duration::from_mins(3), "it needs no more", async || db.count(OWN).await <= 4).await;
    })
    .await;
    db.finish().await;
}

/// Statement that locks the tables of expiries, schedules, history and job types. An ordinary job is enqueued and run without them.
const HELD: &str =
    "lock table queue.expiry, queue.schedule, queue.tally_source, queue.tally_total, queue.type_options in access exclusive mode";

#[tokio::test]
#[ignore = "deep"]
async fn statements_that_hang_keep_neither_claims_nor_verdicts_waiting() {
    for connections in [4, 5, 12] {
        let db = TestDb::new().await;
        let mut on = sqlx::PgConnection::connect(&db.url).await.unwrap();
        db.run_while(worker(&db, connections), async {
            let first = quick().enqueue(&db.pool).await.unwrap().id();
            db.until(first, JobState::Completed).await;
            let mut held = on.begin().await.unwrap();
            sqlx::raw_sql(HELD).execute(&mut *held).await.unwrap();
            let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
            eventually("something hangs", async || db.count(waits).await > 0).await;
            for _ in 0..100 {
                let job = quick().enqueue(&db.pool).await.unwrap().id();
                db.until(job, JobState::Completed).await;
            }
            assert!(db.count(OWN).await <= i64::try_from(connections).unwrap());
            held.rollback().await.unwrap();
        })
        .await;
        db.finish().await;
    }
}

#[tokio::test]
async fn three_connections_are_too_few() {
    let db = TestDb::new().await;
    let error = worker(&db, 3).run(std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("connections") && error.to_string().contains("4 to 100"), "{error}");
    db.finish().await;
}
