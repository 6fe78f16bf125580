//! Tests that each tick fires exactly once, even if workers with wrong clocks are killed or stopped, or the server is killed.

use std::time::{Duration, Instant};

use queue_core::Queue;
use tests::{Clock, TestDb, WorkerProcess, eventually};

use super::{STORE, check_each_second, each_second};

const WORKER: &str = env!("CARGO_BIN_EXE_test-worker");
const SCHEDULES: usize = 20;

/// Starts a worker with a randomly chosen clock.
fn worker(db: &TestDb, clocks: &[Clock]) -> WorkerProcess {
    let clock = fastrand::choice(clocks).map(Clock::environment);
    let by = clock.iter().flatten().map(|(name, value)| (*name, value.as_str()));
    let settings: Vec<(&str, &str)> = [("TTL_MS", "1500"), ("CONCURRENCY", "4")].into_iter().chain(by).collect();
    WorkerProcess::start(WORKER, &db.url, &settings)
}

/// Returns the duration of the test: `QUEUE_TEST_CRON_SECONDS`, or 12 seconds by default.
fn how_long() -> Duration {
    let configured = std::env::var("QUEUE_TEST_CRON_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(configured.unwrap_or(12))
}

#[tokio::test]
#[ignore = "deep"]
async fn no_tick_is_missed_or_doubled_while_workers_are_killed_and_stopped() {
    let db = TestDb::new().await;
    for place in 0..SCHEDULES {
        Queue::new(&db.pool).store(STORE()).schedule(&format!("s{place}")).create(&each_second()).await.unwrap();
    }
    let wrong: &[i64] = if cfg!(target_os = "linux") { &[-90, 0, 90] } else { &[] };
    let clocks: Vec<Clock> = wrong.iter().map(|seconds| Clock::new(*seconds).unwrap()).collect();
    let mut workers: Vec<WorkerProcess> = (0..3).map(|_| worker(&db, &clocks)).collect();
    eventually("ticks fire", async || db.count("select count(*) from queue.fire").await > 0).await;
    let (began, mut kills, mut stops) = (Instant::now(), 0, 0);
    while began.elapsed() < how_long() {
        let victim = fastrand::usize(..workers.len());
        if fastrand::bool() {
            workers.swap_remove(victim).kill();
            workers.push(worker(&db, &clocks));
            kills += 1;
        } else {
            workers[victim].signal("STOP");
            // The stopped worker becomes a zombie: it continues after other workers have fired its ticks.
            let fired = db.count("select count(*) from queue.fire").await;
            eventually("others continue", async || db.count("select count(*) from queue.fire").await > fired + 20).await;
            workers[victim].signal("CONT");
            stops += 1;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..600))).await;
    }
    assert!(kills + stops >= 5, "{kills} kills, {stops} stops");
    sqlx::query("update queue.schedule set paused_at = now()").execute(&db.pool).await.unwrap();
    let mut ticks = 0;
    for place in 0..SCHEDULES {
        ticks += check_each_second(&db.pool, &format!("s{place}")).await;
    }
    assert!(ticks > 10 * SCHEDULES, "{ticks}");
    let late: Vec<f64> = sqlx::query_scalar("select extract(epoch from fired_at - tick)::float8 from queue.fire order by 1")
        .fetch_all(&db.pool)
        .await
        .unwrap();
    println!(
        "{ticks} ticks over {kills} kills and {stops} stops; late p50 {:.3} s, p99 {:.3} s",
        late[late.len() / 2],
        late[late.len() * 99 / 100]
    );
    assert!(late.iter().all(|late| (0.0..60.0).contains(late)), "all within their grace");
    eventually("their jobs end", async || {
        db.count("select count(*) from queue.jobs where state in ('ready', 'running', 'scheduled')").await == 0
    })
    .await;
    drop(workers);
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_server_that_is_killed_loses_no_tick_that_had_its_job() {
    let server = tests::server::TestServer::start().await.unwrap();
    let database = server.database("cron").await.unwrap();
    for place in 0..5 {
        Queue::new(&database.pool).store(STORE()).schedule(&format!("s{place}")).create(&each_second()).await.unwrap();
    }
    let url = server.url("cron");
    let _workers: Vec<WorkerProcess> = (0..2).map(|_| WorkerProcess::start(WORKER, &url, &[("TTL_MS", "1500")])).collect();
    let fired = async || database.count("select count(*) from queue.fire").await.unwrap_or_default();
    for round in 1..=3 {
        eventually("ticks fire", async || fired().await >= round * 10).await;
        server.kill().unwrap();
        server.restart().await.unwrap();
    }
    let before = fired().await;
    eventually("ticks continue", async || fired().await >= before + 10).await;
    let broken =
        "select count(*) from queue.fire f where f.outcome <> 'enqueued' or not exists (select from queue.job j where j.id = f.job)";
    assert_eq!(database.count(broken).await.unwrap(), 0, "a tick and its job are one commit");
    let gaps = "select count(*) from (select tick - lag(tick) over (partition by name order by tick) as gap from queue.fire) g where gap <> interval '1 s'";
    assert_eq!(database.count(gaps).await.unwrap(), 0, "none missed");
    let doubled = "select count(*) from (select from queue.job group by system having count(*) > 1) d";
    assert_eq!(database.count(doubled).await.unwrap(), 0, "none twice");
}
