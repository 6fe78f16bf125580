//! Tests the metrics in scrapes of workers that ran jobs, and of a worker whose database is unreachable.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use queue_core::{Job as _, JobId, JobState, Queue, migrate::DAYS_AHEAD};
use queue_worker::Worker;
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do, TestDb, UntilGo, WorkerProcess, server::TestServer, within};
use tokio::sync::oneshot;

use super::{REMEMBERED, Scrape, documented};
use crate::health::{free_address, get};

async fn enqueue(db: &TestDb, act: Act, jobs: usize) {
    for _ in 0..jobs {
        Do { act: act.clone() }.enqueue(&db.pool).await.unwrap();
    }
}

const CONSUMED: &str = "messaging_client_consumed_messages_total";

fn outcome(scrape: &Scrape, job_type: &str, outcome: &str) -> Option<f64> {
    scrape.sum(CONSUMED, &[("messaging_system", "queue"), ("queue_job_type", job_type), ("queue_outcome", outcome)])
}

/// Creates a job whose worker is killed while the job runs.
async fn orphan(db: &TestDb) -> JobId {
    let job = UntilGo {}.enqueue(&db.pool).await.unwrap().id();
    let killed = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    within(Duration::from_mins(1), "it runs", async || db.count("select count(*) from effect").await == 1).await;
    db.kill(killed).await;
    sqlx::query("create table go ()").execute(&db.pool).await.unwrap();
    job
}

#[tokio::test]
#[ignore = "deep"]
async fn each_metric_of_a_worker_that_ran_jobs_equals_the_database() {
    let (db, address) = (TestDb::new().await, free_address().await);
    let orphan = orphan(&db).await;
    enqueue(&db, Act::Ok("x".into()), 5).await;
    enqueue(&db, Act::FailUntil(2), 3).await;
    enqueue(&db, Act::Terminal("no".into()), 2).await;
    enqueue(&db, Act::Panic, 1).await;
    Do { act: Act::Ok("late".into()) }.enqueue(&db.pool).after(Duration::from_hours(9)).await.unwrap();
    Do { act: Act::Ok("elsewhere".into()) }.enqueue(&db.pool).queue("unserved").await.unwrap();
    // Another session holds a snapshot while transactions continue.
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    let mut held = other.begin().await.unwrap();
    sqlx::raw_sql("set transaction isolation level repeatable read; select 1").execute(&mut *held).await.unwrap();
    enqueue(&db, Act::Ok("x".into()), 1).await;
    let worker = db.worker().queue("default", 20).register::<UntilGo>().health(address);
    db.run_while(worker, async {
        db.until(orphan, JobState::Completed).await;
        let ended = "select count(*) from queue.jobs where state in ('completed', 'dead')";
        within(Duration::from_mins(1), "all have ended", async || db.count(ended).await == 13).await;
        let is_counted = async || outcome(&Scrape::of(address).await, "do", "dead") == Some(3.0);
        within(Duration::from_secs(30), "the last verdicts are counted", is_counted).await;
        let pruned = async || Scrape::of(address).await.sum("queue_prune_age_seconds", &[]).is_some();
        within(Duration::from_mins(1), "it has pruned", pruned).await;
        let is_seen = async || Scrape::of(address).await.sum("queue_jobs", &[("queue_state", "dead")]) == Some(3.0);
        within(4 * REMEMBERED, "the store was queried again", is_seen).await;
        let scrape = Scrape::of(address).await;
        of_attempts(&db, &scrape).await;
        of_the_store(&db, &scrape).await;
    })
    .await;
    drop(held);
    db.finish().await;
}

async fn of_attempts(db: &TestDb, scrape: &Scrape) {
    let completed = db.count("select count(*) from queue.jobs where state = 'completed' and job_type = 'do'").await as f64;
    let dead = db.count("select count(*) from queue.dead").await as f64;
    let failures = db
        .count("select count(*) from queue.failure f join queue.job j using (id) join queue.lane l using (lane) where job_type = 'do'")
        .await;
    assert_eq!((completed, dead, failures), (9.0, 3.0, 3 + 2 + 3), "as was enqueued");
    assert_eq!((outcome(scrape, "do", "completed"), outcome(scrape, "do", "dead")), (Some(completed), Some(dead)));
    assert_eq!(outcome(scrape, "do", "retried"), Some(failures as f64 - dead), "what failed is tried again or dead");
    assert_eq!((outcome(scrape, "until_go", "completed"), outcome(scrape, "until_go", "retried")), (Some(1.0), Some(1.0)));
    assert_eq!(scrape.sum("queue_jobs_recovered_total", &[("queue_job_type", "until_go")]), Some(1.0));
    assert_eq!(scrape.sum("queue_jobs_recovered_total", &[]), Some(1.0), "and nothing else was");
    assert_eq!(scrape.sum("queue_attempt_failures_total", &[("error_type", "panic")]), Some(3.0));
    assert_eq!(scrape.sum("queue_attempt_failures_total", &[("error_type", "timeout")]), None);
    let attempts = completed + failures as f64;
    for name in ["messaging_process_duration_seconds", "queue_job_start_latency_seconds"] {
        assert_eq!(scrape.sum(&format!("{name}_count"), &[("queue_job_type", "do")]), Some(attempts), "{name}");
        assert_eq!(scrape.sum(&format!("{name}_bucket"), &[("queue_job_type", "do"), ("le", "+Inf")]), Some(attempts), "{name}");
        assert!(scrape.sum(&format!("{name}_sum"), &[("queue_job_type", "do")]) > Some(0.0), "{name}");
    }
    for name in ["queue_claim_duration_seconds_count", "queue_settle_duration_seconds_count"] {
        assert!(scrape.sum(name, &[]) > Some(0.0), "{name}");
    }
    assert_eq!((scrape.sum("queue_settle_retries_total", &[]), scrape.sum("queue_settle_lag_seconds", &[])), (Some(0.0), Some(0.0)));
    assert_eq!(scrape.sum("db_client_connection_max", &[]), Some(8.0), "as the pool was made");
    let connections = scrape.sum("db_client_connection_count", &[]).unwrap();
    assert!((1.0..=8.0).contains(&connections), "{connections}");
}

async fn of_the_store(db: &TestDb, scrape: &Scrape) {
    assert_eq!(scrape.sum("queue_store_reachable", &[]), Some(1.0));
    let counts: Vec<(String, String, i64)> =
        sqlx::query_as("select queue, state, count(*) from queue.jobs group by 1, 2").fetch_all(&db.pool).await.unwrap();
    assert_eq!(counts.len(), 4, "{counts:?}");
    for (queue, state, jobs) in &counts {
        let labels = [("messaging_destination_name", queue.as_str()), ("queue_state", state.as_str())];
        assert_eq!(scrape.sum("queue_jobs", &labels), Some(*jobs as f64), "{queue} {state}");
    }
    assert_eq!(scrape.sum("queue_jobs", &[]), Some(db.count("select count(*) from queue.jobs").await as f64));
    assert_eq!(scrape.sum("queue_jobs_partial", &[]), Some(0.0), "all were counted");
    let waits = scrape.sum("queue_ready_oldest_seconds", &[("messaging_destination_name", "unserved")]).unwrap();
    assert!(waits > 0.0 && waits < 600.0 && scrape.sum("queue_ready_oldest_seconds", &[]) == Some(waits), "{waits}");
    let made = db.count("select count(*) from pg_inherits where inhparent = 'queue.job'::regclass").await;
    assert!(made > i64::from(DAYS_AHEAD), "{made}");
    assert_eq!(scrape.sum("queue_days_ahead", &[]), Some(f64::from(DAYS_AHEAD)));
    assert!(scrape.sum("queue_snapshot_age", &[]) >= Some(1.0) && scrape.sum("queue_transaction_age_seconds", &[]) > Some(0.0));
}

#[tokio::test]
async fn each_metric_is_documented_and_each_documented_one_exists() {
    let (db, address) = (TestDb::new().await, free_address().await);
    enqueue(&db, Act::Ok("x".into()), 1).await;
    enqueue(&db, Act::Panic, 1).await;
    let job = Do { act: Act::Ok("over".into()) }.enqueue(&db.pool).expires_in(Duration::from_millis(1)).await.unwrap().id();
    db.run_while(db.worker().health(address), async {
        within(Duration::from_mins(1), "a job is dead", async || db.count("select count(*) from queue.dead").await == 1).await;
        within(Duration::from_mins(1), "one has finished", async || db.state(job).await != Some(JobState::Ready)).await;
        let scrape = Scrape::of(address).await;
        let documented = documented();
        let page: BTreeSet<(&str, &str)> = documented.iter().map(|row| (row.prometheus.as_str(), row.kind.as_str())).collect();
        let scraped: BTreeSet<(&str, &str)> = scrape.types.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect();
        assert_eq!(page, scraped);
        for row in &documented {
            let unit = if row.unit == "s" { "_seconds" } else { "" };
            let total = if row.kind == "counter" { "_total" } else { "" };
            assert_eq!(row.prometheus, format!("{}{unit}{total}", row.otel.replace('.', "_")), "the conventions' translation");
            let ours = |name: &str| {
                let rest = name.strip_prefix(&row.prometheus);
                rest.is_some_and(|rest| rest.is_empty() || row.kind == "histogram" && ["_bucket", "_sum", "_count"].contains(&rest))
            };
            for (name, labels, _) in scrape.values.iter().filter(|(name, ..)| ours(name)) {
                let found: BTreeSet<&str> = labels.iter().map(|(label, _)| label.as_str()).filter(|label| *label != "le").collect();
                assert_eq!(found, row.labels.iter().map(String::as_str).collect(), "{name}");
            }
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn while_the_database_is_unreachable_a_process_exports_its_own_metrics_in_time() {
    let (server, address) = (TestServer::start().await.unwrap(), free_address().await);
    let database = server.database("away").await.unwrap();
    let job = Do { act: Act::Ok("x".into()) }.enqueue(&database.pool).await.unwrap();
    let worker = Worker::new(database.pool.clone()).register::<Do>().health(address);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(worker.run(async move { stopped.await.unwrap_or_default() }));
    job.wait(&Queue::new(&database.pool)).await.unwrap();
    let is_counted = async || outcome(&Scrape::of(address).await, "do", "completed") == Some(1.0);
    within(Duration::from_secs(30), "it is counted", is_counted).await;
    server.kill().unwrap();
    let is_away = async || {
        let scrape = Scrape::of(address).await;
        assert_eq!(outcome(&scrape, "do", "completed"), Some(1.0));
        scrape.sum("queue_store_reachable", &[]) == Some(0.0) && scrape.sum("queue_jobs", &[]).is_none()
    };
    within(Duration::from_mins(1), "it reports it", is_away).await;
    server.restart().await.unwrap();
    let is_back = async || Scrape::of(address).await.sum("queue_store_reachable", &[]) == Some(1.0);
    within(Duration::from_mins(1), "it is back", is_back).await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn any_number_of_scrapes_query_the_store_on_one_connection() {
    let (db, address) = (TestDb::new().await, free_address().await);
    db.run_while(db.worker().health(address), async {
        within(Duration::from_mins(1), "it is ready", async || matches!(get(address, "/readyz").await, Some((200, _)))).await;
        let scrapes = (0..50).map(|_| Scrape::of(address));
        let scrapes = futures_util::future::join_all(scrapes).await;
        assert!(scrapes.iter().all(|scrape| scrape.sum("queue_store_reachable", &[]) == Some(1.0)));
        let connections =
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'queue-worker figures'";
        assert_eq!(db.count(connections).await, 1);
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn the_error_of_querying_the_store_is_logged_once_per_change() {
    let (server, address) = (TestServer::start().await.unwrap(), free_address().await);
    let database = server.database("told").await.unwrap();
    let settings = [("QUEUE_LOG", "warn,queue_worker::figures=info"), ("HEALTH", &*address.to_string())];
    let worker = WorkerProcess::start_logged(env!("CARGO_BIN_EXE_test-worker"), &server.url(&database.name), &settings);
    let began = Instant::now();
    within(Duration::from_mins(1), "it is ready", async || matches!(get(address, "/readyz").await, Some((200, _)))).await;
    let is_reachable = async || Scrape::of(address).await.sum("queue_store_reachable", &[]) == Some(1.0);
    within(Duration::from_mins(1), "it can be asked", is_reachable).await;
    server.kill().unwrap();
    let lines_with = |what: &str| worker.log_since(began).into_iter().filter(|line| line.contains(what)).collect::<Vec<_>>();
    let away = || lines_with("cannot query the store for metrics");
    within(Duration::from_mins(1), "it reports it", async || !is_reachable().await && !away().is_empty()).await;
    // During this loop the worker sends four or five queries to the unreachable server.
    let gone = Instant::now();
    while gone.elapsed() < 4 * REMEMBERED {
        assert_eq!(Scrape::of(address).await.sum("queue_store_reachable", &[]), Some(0.0));
        tokio::time::sleep(REMEMBERED / 10).await;
    }
    assert!(away().len() <= 2, "a connection that was cut, and one that is refused: {:?}", away());
    assert!(lines_with("can be queried for metrics again").is_empty());
    server.restart().await.unwrap();
    let is_reported = async || is_reachable().await && lines_with("can be queried for metrics again").len() == 1;
    within(Duration::from_mins(1), "it reports that the store is back", is_reported).await;
    worker.kill();
}
