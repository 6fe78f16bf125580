//! Tests statistics that cannot be written. The jobs continue, and the failure is reported. The statistics are written later, or dropped if
//! the server keeps refusing them.

use std::time::{Duration, Instant};

use queue_core::{Job as _, JobState};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{Act, Do, TestDb, WorkerProcess, within};

use super::together;

const FAILED: &str = "cannot write the counts of attempts";

async fn enqueue(db: &TestDb, jobs: usize) {
    for _ in 0..jobs {
        let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
        db.until(job, JobState::Completed).await;
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn while_the_table_is_locked_jobs_continue_a_warning_is_logged_and_nothing_is_lost() {
    let db = TestDb::new().await;
    let process = WorkerProcess::start_logged(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[("PACE", "20")]);
    let mut open = PgConnection::connect(&db.url).await.unwrap();
    open.execute("begin; lock table queue.tallied in access exclusive mode").await.unwrap();
    let since = Instant::now();
    enqueue(&db, 10).await;
    within(Duration::from_mins(1), "it is reported", async || process.log_since(since).iter().any(|line| line.contains(FAILED))).await;
    enqueue(&db, 10).await;
    open.execute("rollback").await.unwrap();
    within(Duration::from_mins(1), "all are reported", async || together(&db).await.is_some_and(|sum| sum.completed == 20)).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn statistics_that_the_server_keeps_refusing_are_dropped_and_the_next_are_written() {
    let db = TestDb::new().await;
    db.pool.execute("alter table queue.tallied add constraint small check (completed <> 3)").await.unwrap();
    let process = WorkerProcess::start_logged(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[("PACE", "20")]);
    let since = Instant::now();
    db.until(Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id(), JobState::Completed).await;
    let three = |job: i64| Do { act: Act::Ok(job.to_string()) };
    Do::enqueue_all((0..2).map(three), &db.pool).await.unwrap();
    let refused = async || process.log_since(since).iter().any(|line| line.contains("dropped counts of attempts: the server refuses them"));
    within(Duration::from_mins(1), "something is written", async || together(&db).await.is_some() || refused().await).await;
    db.pool.execute("alter table queue.tallied drop constraint small").await.unwrap();
    let before = together(&db).await.map_or(0, |sum| sum.completed);
    enqueue(&db, 1).await;
    within(Duration::from_mins(1), "the next is written", async || together(&db).await.is_some_and(|sum| sum.completed > before)).await;
    db.finish().await;
}
