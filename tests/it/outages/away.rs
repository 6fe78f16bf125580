//! Tests workers whose server is killed, is shut down, or rejects logins.

use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};
use tests::{Act, TestDb, WorkerProcess, eventually, server::TestServer};

use super::{announced, begin, complains_with_restraint, nothing_is_charged, outage_duration, worker, works};

#[tokio::test]
#[ignore = "deep"]
async fn f47_workers_outlive_an_absent_database() {
    let server = TestServer::start().await.unwrap();
    let database = server.database("away").await.unwrap();
    let mut workers: Vec<_> = (0..4).map(|_| worker(&server.url("away"))).collect();
    announced(&database, 4).await;
    begin(&database, 20, Act::Sleep(2000)).await;
    server.kill().unwrap();
    let since = Instant::now();
    tokio::time::sleep(outage_duration()).await;
    server.restart().await.unwrap();
    works(&database.pool).await;
    for worker in &mut workers {
        complains_with_restraint(worker, since);
    }
    nothing_is_charged(&database).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f46_a_server_that_is_shut_down_costs_no_attempt() {
    let server = TestServer::start().await.unwrap();
    let database = server.database("away").await.unwrap();
    let mut worker = worker(&server.url("away"));
    announced(&database, 1).await;
    begin(&database, 10, Act::Sleep(500)).await;
    let since = Instant::now();
    server.stop().unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.restart().await.unwrap();
    works(&database.pool).await;
    complains_with_restraint(&mut worker, since);
    nothing_is_charged(&database).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f46_a_server_with_too_many_connections_costs_no_attempt() {
    const END: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'queue-worker%'";
    let server = TestServer::start_with(&["max_connections=25", "superuser_reserved_connections=0"]).await.unwrap();
    let database = server.database("crowded").await.unwrap();
    let mut worker = worker(&server.url("crowded"));
    announced(&database, 1).await;
    begin(&database, 10, Act::Sleep(500)).await;
    let mut admin = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let since = Instant::now();
    let mut crowd = Vec::new();
    while since.elapsed() < Duration::from_secs(5) {
        sqlx::query(END).execute(&mut admin).await.unwrap();
        while let Ok(one) = PgConnection::connect(&server.url("postgres")).await {
            crowd.push(one);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(crowd);
    works(&database.pool).await;
    let lines = complains_with_restraint(&mut worker, since);
    assert!(lines.iter().any(|line| line.contains("too many clients")), "{lines:#?}");
    nothing_is_charged(&database).await;
    eventually("it has all its connections", async || {
        database
            .count("select count(distinct application_name) from pg_stat_activity where application_name like 'queue-worker %'")
            .await
            .unwrap()
            >= 4
    })
    .await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_logs_that_it_listens_again() {
    const LISTENER: &str = "from pg_stat_activity where datname = current_database() and application_name = 'queue-worker listen'";
    let db = TestDb::new().await;
    let worker = WorkerProcess::start_logged(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[("QUEUE_LOG", "info")]);
    eventually("it listens", async || db.count(&format!("select count(*) {LISTENER} and state = 'idle'")).await == 1).await;
    let since = Instant::now();
    let has_logged = || worker.log_since(since).iter().any(|line| line.contains("listening for notifications again"));
    assert_eq!(db.count(&format!("select count(pg_terminate_backend(pid)) {LISTENER}")).await, 1);
    eventually("it logs the reconnect", async || has_logged()).await;
    drop(worker);
    db.finish().await;
}
