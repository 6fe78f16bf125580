//! Measures how late one-second schedules fire, with one otherwise idle worker.

use std::time::Duration;

use queue_core::Queue;
use tests::{TestDb, WorkerProcess, within};

use super::{STORE, check_each_second, each_second};

const SCHEDULES: usize = 10;

/// Manual test for an idle machine: `cargo test -p tests --test it cron::late -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "by hand: measures for two minutes, and wants a machine for itself"]
async fn of_ten_schedules_of_a_second_99_of_100_ticks_are_at_most_50_ms_late() {
    let db = TestDb::new().await;
    for place in 0..SCHEDULES {
        Queue::new(&db.pool).store(STORE()).schedule(&format!("s{place}")).create(&each_second()).await.unwrap();
    }
    let worker = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    let patience = Duration::from_mins(3);
    within(patience, "120 ticks each", async || db.count("select count(*) from queue.fire").await >= 120 * SCHEDULES as i64).await;
    sqlx::query("update queue.schedule set paused_at = now()").execute(&db.pool).await.unwrap();
    for place in 0..SCHEDULES {
        check_each_second(&db.pool, &format!("s{place}")).await;
    }
    let ended = "select count(*) from queue.jobs where state <> 'completed'";
    within(patience, "their jobs have ended", async || db.count(ended).await == 0).await;
    // The first ticks are not measured, because their time has passed when the schedules are created.
    let late = async |of: &str, moment: &str| {
        let all = format!(
            "select extract(epoch from {moment} - f.tick)::float8 * 1000 from queue.fire f join effect e on e.job = f.job
             where f.tick > (select min(tick) + interval '2 s' from queue.fire) order by 1"
        );
        let all: Vec<f64> = sqlx::query_scalar(sqlx::AssertSqlSafe(all)).fetch_all(&db.pool).await.unwrap();
        let at = |share: usize| all[(all.len() - 1) * share / 100];
        println!("{of}: {} ticks, late p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", all.len(), at(50), at(99), at(100));
        at(99)
    };
    let fired = late("fired", "f.fired_at").await;
    late("begun", "e.at").await;
    assert!(fired <= 50.0, "p99 is {fired} ms");
    drop(worker);
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}
