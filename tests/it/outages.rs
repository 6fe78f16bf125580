//! Tests a database that becomes unreachable, fails over, fills up or stops responding. Each test has its own server. The environment
//! variable `QUEUE_TEST_AWAY` overrides the duration of an outage, in seconds.

mod away;
mod full;
mod half_open;
mod numbers;
mod pooler;
mod standby;

use std::time::{Duration, Instant};

use queue_core::{Job as _, JobId};
use sqlx::PgPool;
use tests::{Act, Do, WorkerProcess, eventually, server::Database, within};

fn outage_duration() -> Duration {
    let seconds = std::env::var("QUEUE_TEST_AWAY").ok().and_then(|value| value.parse().ok());
    Duration::from_secs(seconds.unwrap_or(8))
}

/// Starts a worker whose lease outlives every outage, so that no job is repeated.
fn worker(url: &str) -> WorkerProcess {
    patient_worker(url, Duration::from_secs(30) + 2 * outage_duration())
}

fn patient_worker(url: &str, ttl: Duration) -> WorkerProcess {
    let ttl = ttl.as_millis().to_string();
    WorkerProcess::start_logged(env!("CARGO_BIN_EXE_test-worker"), url, &[("TTL_MS", &ttl)])
}

async fn announced(database: &Database, workers: i64) {
    let all = async || database.count("select count(*) from queue.worker").await.unwrap() == workers;
    within(Duration::from_secs(20), "all workers are announced", all).await;
}

async fn enqueue(pool: &PgPool, act: Act) -> JobId {
    Do { act }.enqueue(pool).await.unwrap().id()
}

/// Enqueues jobs that end during the outage, and waits until they have started.
async fn begin(database: &Database, jobs: i64, act: Act) {
    for _ in 0..jobs {
        enqueue(&database.pool, act.clone()).await;
    }
    let begun = async || database.count("select count(*) from effect").await.unwrap() == jobs;
    within(Duration::from_secs(20), "all have begun", begun).await;
}

async fn is_completed(pool: &PgPool, job: JobId) -> bool {
    let state = sqlx::query_scalar::<_, String>("select state from queue.jobs where id = $1").bind(job).fetch_optional(pool).await;
    state.is_ok_and(|state| state.as_deref() == Some("completed"))
}

/// Waits until a new job has completed and prints the elapsed time.
async fn works(pool: &PgPool) {
    let began = Instant::now();
    let job = enqueue(pool, Act::Ok(String::new())).await;
    eventually("a new job is completed", async || is_completed(pool, job).await).await;
    println!("works after {:?}", began.elapsed());
}

/// Checks that all jobs completed on their first attempt, because an outage must not be charged to jobs.
async fn nothing_is_charged(database: &Database) {
    nothing_is_charged_but(database, "").await;
}

/// Like [`nothing_is_charged`], but permits attempts that failed with the error `excused`.
async fn nothing_is_charged_but(database: &Database, excused: &str) {
    let open = "select count(*) from queue.jobs where state in ('ready', 'scheduled', 'running')";
    eventually("nothing is left to do", async || database.count(open).await.unwrap() == 0).await;
    let excused = format!("select id from queue.failure where error = '{excused}'");
    let odd = format!("(state <> 'completed' or crashes <> 0 or attempts <> 1 and id not in ({excused}))");
    assert_eq!(database.count(&format!("select count(*) from queue.jobs where {odd}")).await.unwrap(), 0);
    let failures = format!("select count(*) from queue.failure where id not in ({excused})");
    assert_eq!(database.count(&failures).await.unwrap(), 0);
    let again = "select count(*) - count(distinct job) from effect";
    assert_eq!(database.count(again).await.unwrap(), 0, "each ran once");
    let broken = tests::broken(&mut database.pool.acquire().await.unwrap()).await.unwrap();
    assert!(broken.is_empty(), "(id, entries, jobs) that break the invariant: {broken:?}");
}

/// Checks that the worker is alive and has logged the problem, at most about once a second. The claim loop and the settle loop must not
/// log the problem themselves.
fn complains_with_restraint(worker: &mut WorkerProcess, since: Instant) -> Vec<String> {
    assert!(!worker.has_ended(), "a worker has ended: {:?}", worker.log_since(since));
    let (lines, seconds) = (worker.log_since(since), since.elapsed().as_secs_f64().ceil() as usize);
    assert!(!lines.is_empty(), "it logged nothing");
    let of = |module: &str| lines.iter().filter(|line| line.contains(&format!("queue_worker::{module}:"))).count();
    assert!(of("error") <= seconds + 1, "{} lines in {seconds} s: {lines:#?}", of("error"));
    assert_eq!((of("claim"), of("settle")), (0, 0), "no loop complains by itself: {lines:#?}");
    lines
}
