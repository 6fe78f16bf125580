//! Tests schedules under clocks that are wrong by 90 seconds. A worker's clock has no effect, because it is never read. Each tick has
//! exactly one job, even if the server's clock steps forward and back.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use queue_core::{Queue, schedule::Missed};
use tests::{
    Clock, INVARIANT, WorkerProcess, eventually,
    server::{Database, TestServer},
    within,
};

use super::{STORE, check_each_second, each_second};

const WORKER: &str = env!("CARGO_BIN_EXE_test-worker");
const SCHEDULES: usize = 20;

/// Starts a worker whose clock is off by `wrong` seconds. Checks the offset in the worker's log.
async fn worker(url: &str, clock: &Clock, wrong: i64) -> WorkerProcess {
    let began = Instant::now();
    let by = clock.environment();
    let by = by.iter().map(|(name, value)| (*name, value.as_str()));
    let settings: Vec<(&str, &str)> = [("TTL_MS", "1500"), ("QUEUE_LOG", "info"), ("NO_COLOR", "1")].into_iter().chain(by).collect();
    let worker = WorkerProcess::start_with(WORKER, url, &[], &settings);
    eventually("it logs that it has started", async || worker.log_since(began).iter().any(|line| line.contains("worker started"))).await;
    let logged = worker.log_since(began)[0].clone();
    let logged: DateTime<Utc> = logged.split_whitespace().next().unwrap().parse().unwrap();
    let off = (logged - Utc::now()).num_seconds() - wrong;
    assert!((-20..=5).contains(&off), "it logged {logged}");
    worker
}

/// Returns the offset of the server's clock from the test's clock in seconds, rounded to tens.
async fn server_is_off(database: &Database) -> i64 {
    let now: DateTime<Utc> = sqlx::query_scalar("select clock_timestamp()").fetch_one(&database.pool).await.unwrap();
    ((now - Utc::now()).as_seconds_f64() / 10.0).round() as i64 * 10
}

async fn count(database: &Database, query: &str) -> i64 {
    database.count(query).await.unwrap()
}

/// Waits until each schedule has fired its due ticks and its next tick is not before `after`.
async fn caught_up(database: &Database, after: DateTime<Utc>) {
    within(Duration::from_secs(90), "all schedules have caught up", async || {
        let behind =
            "select count(*) from queue.schedule where next_at is null or next_at < clock_timestamp() - interval '2 s' or next_at < $1";
        let behind: i64 = sqlx::query_scalar(behind).bind(after).fetch_one(&database.pool).await.unwrap();
        behind == 0
    })
    .await;
}

async fn last_tick(database: &Database) -> DateTime<Utc> {
    sqlx::query_scalar("select max(tick) from queue.fire").fetch_one(&database.pool).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn a_server_whose_clock_steps_by_90_seconds_both_ways_misses_and_doubles_no_tick() {
    let clock = Clock::new(0).unwrap();
    let server = TestServer::start_by(&clock).await.unwrap();
    let database = server.database("cron").await.unwrap();
    let url = server.url("cron");
    for place in 0..SCHEDULES {
        let each_second =
            if place % 2 == 0 { each_second().grace(Duration::from_mins(10)) } else { each_second().missed(Missed::CatchUp(999)) };
        Queue::new(&database.pool).store(STORE()).schedule(&format!("s{place}")).create(&each_second).await.unwrap();
    }
    let wrong = [(-90, Clock::new(-90).unwrap()), (0, Clock::new(0).unwrap()), (90, Clock::new(90).unwrap())];
    let mut workers = Vec::new();
    for (seconds, clock) in &wrong {
        workers.push(worker(&url, clock, *seconds).await);
    }
    let began = Utc::now();
    caught_up(&database, began + Duration::from_secs(2)).await;
    assert_eq!(server_is_off(&database).await, 0);

    // The step expires all leases, and 90 ticks of each schedule become due.
    clock.set(90).unwrap();
    assert_eq!(server_is_off(&database).await, 90);
    workers.remove(0).kill();
    workers.push(worker(&url, &wrong[0].1, -90).await);
    caught_up(&database, began + Duration::from_secs(95)).await;

    // After this step back, the clock passes the times of 90 ticks again. Resumed schedules are planned from the current time.
    clock.set(0).unwrap();
    assert_eq!(server_is_off(&database).await, 0);
    let last = last_tick(&database).await;
    let resumed: Vec<String> = (0..SCHEDULES / 2).map(|place| format!("s{place}")).collect();
    for name in &resumed {
        Queue::new(&database.pool).store(STORE()).schedule(name).pause().await.unwrap();
    }
    // A worker may be about to fire a tick when the clock steps back. It does not fire the tick if the schedule was resumed in the
    // meantime, because it finds that the schedule has changed. Schedules that were not resumed may fire that tick once.
    let of_resumed = format!("select count(*) from queue.fire where name in ('{}')", resumed.join("','"));
    let fired = count(&database, &of_resumed).await;
    for name in &resumed {
        Queue::new(&database.pool).store(STORE()).schedule(name).resume().await.unwrap();
    }
    workers.remove(0).kill();
    workers.push(worker(&url, &wrong[2].1, 90).await);
    let again = count(&database, "select extract(epoch from clock_timestamp())::bigint").await;
    within(Duration::from_mins(1), "they reach ticks that have fired", async || {
        let past = format!(
            "select count(*) from queue.schedule where next_at < to_timestamp({again} + 60) and next_at > to_timestamp({again} + 2)"
        );
        count(&database, &past).await == SCHEDULES as i64 / 2
    })
    .await;
    assert_eq!(count(&database, &of_resumed).await, fired, "none fires again");
    let jobs_without_tick = "select (select count(*) from queue.job) - (select count(*) from queue.fire)";
    assert_eq!(count(&database, jobs_without_tick).await, 0, "none has another job");

    clock.set(-90).unwrap();
    assert_eq!(server_is_off(&database).await, -90);
    workers.remove(0).kill();
    clock.set(90).unwrap();
    caught_up(&database, last + Duration::from_secs(3)).await;
    sqlx::query("update queue.schedule set paused_at = now()").execute(&database.pool).await.unwrap();
    let mut ticks = 0;
    for place in 0..SCHEDULES {
        ticks += check_each_second(&database.pool, &format!("s{place}")).await;
    }
    assert!(ticks > 90 * SCHEDULES, "{ticks}");
    let broken = format!("select count(*) from ({INVARIANT}) b");
    assert_eq!(count(&database, &broken).await, 0, "each job has one entry");
    println!("{ticks} ticks, none missed or doubled");
}
