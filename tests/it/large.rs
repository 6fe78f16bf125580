//! Tests large payloads: the number of bytes that a claim loads, and jobs whose payloads a claim does not load.

use std::time::{Duration, Instant};

use queue_core::Store;
use sqlx::Executor as _;
use tests::{TestDb, WorkerProcess, within};

/// Maximum number of payload bytes that a claim loads, equal to `MAX_BYTES` in `queue-worker/src/lanes/omitted.rs`.
const LARGEST: usize = 32 * MB;

const MB: usize = 1024 * 1024;

/// Claim event in the worker's log.
#[derive(Debug)]
struct Claim {
    jobs: usize,
    /// Size of the loaded payloads in bytes.
    bytes: usize,
    /// Number of jobs whose payloads were not loaded.
    unread: usize,
}

/// Creates a store that accepts jobs of any size.
async fn store() -> TestDb {
    let db = TestDb::new().await;
    let limit = "create or replace function queue.payload_limit() returns integer language sql immutable parallel safe return 100000000";
    db.pool.execute(limit).await.unwrap();
    db
}

/// Enqueues `count` jobs with payloads of `bytes` bytes each.
async fn enqueue(db: &TestDb, count: i32, bytes: usize) {
    let enqueue = "select queue.enqueue('do', jsonb_build_object('act', jsonb_build_object('Ok', ''), 'ballast', repeat('x', $2)))
      from generate_series(1, $1)";
    sqlx::query(enqueue).bind(count).bind(i32::try_from(bytes).unwrap()).execute(&db.pool).await.unwrap();
}

/// Runs a worker until `jobs` jobs have completed on their first attempt. Returns the claims that the worker logged.
async fn run(db: &TestDb, jobs: i64) -> Vec<Claim> {
    let since = Instant::now();
    let settings = [("QUEUE_LOG", "queue_worker=debug"), ("QUEUE_CONCURRENCY", "500")];
    let worker = WorkerProcess::start_with(env!("CARGO_BIN_EXE_test-cli"), &db.url, &["run", "--log-format", "json"], &settings);
    let query = "select count(*) from queue.done where attempts = 1";
    within(Duration::from_mins(5), "all are run", async || db.count(query).await == jobs).await;
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    let log = worker.log_since(since);
    let lines = log.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["fields"].take());
    let number = |fields: &serde_json::Value, name: &str| usize::try_from(fields[name].as_u64().unwrap()).unwrap();
    let claims = lines.filter(|fields| fields["message"] == "claimed" && fields["jobs"] != 0);
    claims.map(|of| Claim { jobs: number(&of, "jobs"), bytes: number(&of, "bytes"), unread: number(&of, "unread") }).collect()
}

#[tokio::test]
#[ignore = "deep"]
async fn a_claim_of_large_jobs_loads_no_more_bytes_than_its_limit_and_all_run() {
    let db = store().await;
    enqueue(&db, 500, MB).await;
    let claims = run(&db, 500).await;
    let most = claims.iter().map(|claim| claim.bytes).max().unwrap();
    assert!((MB..=LARGEST + MB).contains(&most), "{claims:?}");
    // If the payload size was unknown when a claim was sent, the claim releases the jobs whose payloads it cannot load. This applies to
    // the first claim, and to a second claim that is in flight at the same time.
    let given_back: usize = claims.iter().map(|claim| claim.unread).sum();
    assert!((1..=1000).contains(&given_back), "{claims:?}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_job_larger_than_the_limit_runs_and_delays_no_other() {
    let db = store().await;
    enqueue(&db, 3, 40 * MB).await;
    enqueue(&db, 300, 10).await;
    let claims = run(&db, 303).await;
    assert!(claims.iter().all(|claim| claim.bytes <= LARGEST + 41 * MB), "{claims:?}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn small_jobs_are_claimed_in_large_batches_again_after_large_ones() {
    let db = store().await;
    enqueue(&db, 60, MB).await;
    enqueue(&db, 3000, 10).await;
    let claims = run(&db, 3060).await;
    assert!(claims.iter().all(|claim| claim.bytes <= LARGEST + MB), "{claims:?}");
    assert!(claims.iter().any(|claim| claim.jobs >= 100 && claim.bytes < MB), "{claims:?}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_keeps_within_its_payload_memory_and_small_jobs_continue() {
    let db = store().await;
    let slow = "select queue.enqueue('do', jsonb_build_object('act', jsonb_build_object('Sleep', 2500), 'ballast', repeat('x', $2)))
      from generate_series(1, $1)";
    let settings = [("QUEUE_CONCURRENCY", "500"), ("QUEUE_PAYLOAD_MEMORY", "192")];
    let worker = WorkerProcess::start_with(env!("CARGO_BIN_EXE_test-cli"), &db.url, &["run"], &settings);
    // Until the size of the payloads is known, a claim may release jobs whose payloads it cannot load. The payloads of three jobs fit
    // into any claim.
    enqueue(&db, 3, MB).await;
    let completed = async || db.count("select count(*) from queue.jobs where state = 'completed'").await;
    within(Duration::from_secs(30), "the first are run", async || completed().await == 3).await;
    sqlx::query(slow).bind(600).bind(i32::try_from(MB).unwrap()).execute(&db.pool).await.unwrap();
    let (mut most, mut beside) = (0, 0);
    within(Duration::from_mins(5), "all are run", async || {
        let in_hand = db.count("select count(*) from queue.jobs where state = 'running' and queue = 'default'").await;
        most = most.max(in_hand);
        if in_hand >= 20 {
            let small = "select queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}', '{\"queue\": \"small\"}') from generate_series(1, 3)";
            db.pool.execute(small).await.unwrap();
            beside += 3;
            let waits = "select count(*) from queue.jobs where queue = 'small' and state <> 'completed'";
            within(Duration::from_secs(20), "small ones go on", async || db.count(waits).await == 0).await;
        }
        completed().await >= 603 + beside
    })
    .await;
    println!("{most} MiB in hand at most; {beside} small jobs beside");
    assert!((20..=192).contains(&most) && beside > 0, "{most}");
    // A handler may exceed its timeout on a busy machine.
    let failures = "select error from queue.failure where error not like 'timed out after %'";
    let failures: Vec<String> = sqlx::query_scalar(failures).fetch_all(&db.pool).await.unwrap();
    assert_eq!(failures, Vec::<String>::new(), "none was given back for it");
    drop(worker);
    db.finish().await;
}

/// Result row of `unread_payloads.sql`.
type Read = (i64, Option<i16>, Option<String>, Option<i64>, Option<String>, Option<String>, bool);

#[tokio::test]
async fn of_a_job_whose_payload_does_not_fit_everything_else_is_read() {
    let db = TestDb::new().await;
    let write = "insert into queue.job (id, lane, max_attempts, payload, key, meta, system)
      select n, 1, n, to_jsonb(repeat('x', 1000)), n, '{\"a\": 1}', '{\"child_of\": \"1\"}' from generate_series(1, 9) n where n <> 5";
    db.pool.execute(write).await.unwrap();
    let read = sqlx::query_as(Store::default().sql(include_str!("../../queue-worker/sql/unread_payloads.sql")));
    let mut read: Vec<Read> = read.bind((1..=9).collect::<Vec<i64>>()).bind(6200_i64).fetch_all(&db.pool).await.unwrap();
    read.sort_unstable();
    let found: Vec<_> = read.iter().map(|(id, attempts, payload, .., is_unread)| (*id, *attempts, payload.is_some(), *is_unread)).collect();
    let has = |id: i64| (id, Some(i16::try_from(id).unwrap()), id <= 7, id > 7);
    let expected: Vec<_> = (1..=9).map(|id| if id == 5 { (5, None, false, false) } else { has(id) }).collect();
    assert_eq!(found, expected, "six payloads fit, and one is gone");
    for (id, _, _, key, meta, system, _) in read.into_iter().filter(|(id, ..)| *id != 5) {
        let expected = (Some(id), Some("{\"a\": 1}"), Some("{\"child_of\": \"1\"}"));
        assert_eq!((key, meta.as_deref(), system.as_deref()), expected);
    }
    db.pool.execute("delete from queue.job").await.unwrap();
    db.finish().await;
}
