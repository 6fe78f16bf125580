//! Tests URLs with several hosts, and failover to a standby. Each test has two servers, a primary and its standby. The tests print the
//! number of lost jobs and the time until work continues.

mod addresses;
mod behind;
mod in_step;
mod split;
mod starts;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use queue_core::JobId;
use queue_worker::Database as Address;
use sqlx::{AssertSqlSafe, PgPool, postgres::PgPoolOptions};
use tests::{
    WorkerProcess,
    server::{Database, TestServer, lock},
    within,
};
use tokio::task::JoinHandle;

const NAME: &str = "moving";

/// Timeout for events that must happen even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns a URL that lists both hosts, with `one` first.
fn both(one: &TestServer, two: &TestServer) -> String {
    format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{NAME}?sslmode=disable", one.port(), two.port())
}

fn worker(url: &str, ttl: Duration) -> WorkerProcess {
    let ttl = ttl.as_millis().to_string();
    WorkerProcess::start_logged(env!("CARGO_BIN_EXE_test-worker"), url, &[("TTL_MS", &ttl)])
}

/// Connects to the database on `server`, bypassing all proxies.
async fn on(server: &TestServer) -> Database {
    let pool = PgPoolOptions::new().max_connections(4).connect(&server.url(NAME)).await.unwrap();
    Database { name: NAME.to_owned(), pool }
}

async fn now(database: &Database) -> DateTime<Utc> {
    sqlx::query_scalar("select clock_timestamp()").fetch_one(&database.pool).await.unwrap()
}

async fn announced(database: &Database, workers: i64) {
    let all = async || database.count("select count(*) from queue.worker where expires_at > now()").await.unwrap() >= workers;
    within(PATIENCE, "all workers are announced", all).await;
}

/// Returns the next transaction id.
async fn number(database: &Database) -> i64 {
    database.count("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint").await.unwrap()
}

/// Enables synchronous replication, and waits until it is in effect.
async fn wait_for_standby(primary: &Database) {
    for statement in ["alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&primary.pool).await.unwrap();
    }
    let waits = "select count(*) from pg_stat_replication where sync_state = 'sync'";
    within(PATIENCE, "the standby is waited for", async || primary.count(waits).await.unwrap() == 1).await;
}

/// Waits until a job has completed after `moment`. Returns the time from `moment` to the first completion, by the database's clock.
async fn first_after(database: &Database, moment: DateTime<Utc>) -> Duration {
    let first = async || {
        let first = "select min(finished_at) from queue.done where finished_at > $1";
        sqlx::query_scalar::<_, Option<DateTime<Utc>>>(first).bind(moment).fetch_one(&database.pool).await.unwrap()
    };
    within(PATIENCE, "a job is completed after the promotion", async || first().await.is_some()).await;
    (first().await.unwrap() - moment).to_std().unwrap()
}

async fn is_completed(database: &Database, job: JobId) -> bool {
    let state = sqlx::query_scalar::<_, String>("select state from queue.jobs where id = $1").bind(job);
    state.fetch_optional(&database.pool).await.unwrap().as_deref() == Some("completed")
}

/// Producer that enqueues until it is stopped, and records the acknowledged jobs. Some jobs have an ordering key, some are scheduled, and
/// some are in a second or a new queue.
struct Load {
    acknowledged: Arc<Mutex<Vec<JobId>>>,
    tried: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Load {
    fn begin(pool: PgPool) -> Self {
        let (acknowledged, tried, ends) = <(Arc<Mutex<Vec<JobId>>>, Arc<AtomicU64>, Arc<AtomicBool>)>::default();
        let (acked, counted, is_over) = (Arc::clone(&acknowledged), Arc::clone(&tried), Arc::clone(&ends));
        let task = tokio::spawn(async move {
            while !is_over.load(Relaxed) {
                let nth = counted.fetch_add(1, Relaxed);
                let options = match nth % 8 {
                    0 => r#", "key": "a", "queue": "keyed""#.to_owned(),
                    1 => r#", "after": 0.3"#.to_owned(),
                    2 => r#", "queue": "second""#.to_owned(),
                    3 if nth % 200 == 3 => format!(r#", "queue": "born-{nth}""#),
                    _ => String::new(),
                };
                let one = sqlx::query_scalar("select queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}', $1::jsonb)");
                // An enqueue that takes longer than a second counts as not acknowledged.
                match tokio::time::timeout(Duration::from_secs(1), one.bind(format!("{{\"max_attempts\": 90{options}}}")).fetch_one(&pool))
                    .await
                {
                    Ok(Ok(id)) => lock(&acked).push(id),
                    _ => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
        Self { acknowledged, tried, ends, task }
    }

    fn count(&self) -> usize {
        lock(&self.acknowledged).len()
    }

    async fn more(&self, jobs: usize) {
        let until = self.count() + jobs;
        within(PATIENCE, "more is acknowledged", async || self.count() >= until).await;
    }

    /// Stops the producer. Returns the acknowledged jobs and the number of attempted enqueues.
    async fn end(self) -> (Vec<JobId>, u64) {
        self.ends.store(true, Relaxed);
        self.task.await.unwrap();
        (lock(&self.acknowledged).clone(), self.tried.load(Relaxed))
    }
}

/// Returns the number of `jobs` that do not exist in the store.
async fn lost(database: &Database, jobs: &[JobId]) -> i64 {
    let lost = "select count(*) from unnest($1::bigint[]) j (id) where not exists (select from queue.jobs k where k.id = j.id)";
    sqlx::query_scalar(lost).bind(jobs).fetch_one(&database.pool).await.unwrap()
}

/// Waits until all jobs have finished. Checks that no job is dead and that the store's invariant holds.
async fn all_are_completed(database: &Database) {
    let open = "select count(*) from queue.jobs where state not in ('completed', 'dead')";
    within(PATIENCE, "nothing is left to do", async || database.count(open).await.unwrap() == 0).await;
    assert_eq!(database.count("select count(*) from queue.dead").await.unwrap(), 0);
    let broken = tests::broken(&mut database.pool.acquire().await.unwrap()).await.unwrap();
    assert!(broken.is_empty(), "(id, entries, jobs) that break the invariant: {broken:?}");
}

/// Task that measures the longest time that a job stays ready. [`Self::end`] stops the task and returns the time.
struct LongestWait {
    ends: Arc<AtomicBool>,
    task: JoinHandle<Duration>,
}

impl LongestWait {
    fn begin(pool: PgPool) -> Self {
        let ends = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&ends);
        let task = tokio::spawn(async move {
            let (mut since, mut longest) = (HashMap::<i64, Instant>::new(), Duration::ZERO);
            while !is_over.load(Relaxed) {
                let ready: Vec<i64> = sqlx::query_scalar("select id from queue.ready").fetch_all(&pool).await.unwrap();
                let now = Instant::now();
                since.retain(|id, _| ready.contains(id));
                for id in ready {
                    longest = longest.max(now - *since.entry(id).or_insert(now));
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            longest
        });
        Self { ends, task }
    }

    async fn end(self) -> Duration {
        self.ends.store(true, Relaxed);
        self.task.await.unwrap()
    }
}
