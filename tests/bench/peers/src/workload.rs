//! Measures one queue at a time. A measurement creates a database, installs the queue, runs the workload and counts every job. A
//! measurement fails if a job is lost or runs twice.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::{
    client::{Client, Peer},
    database::{BenchDatabase, Server},
    job::{Noop, unix_ns},
    process::WorkerProcess,
    worker::Shape,
};

/// Workload, as defined in `docs/PERFORMANCE.md`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    /// Enqueues one job per transaction.
    Enqueue,
    /// Drains ready jobs with one worker process.
    Drain,
    /// Enqueues one job every 20 ms, with an idle worker.
    Trickle,
}

/// Queue and its settings for one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) peer: Peer,
    pub(crate) shape: Shape,
    /// Whether an enqueue wakes a waiting worker, see [`Client::install`].
    pub(crate) wakes: bool,
    pub(crate) jobs: u64,
}

/// Two measured values, in the order of `Group::figures`.
pub(crate) type Values = [f64; 2];

/// Measures a queue under a workload, in a new database.
pub(crate) async fn measure(server: &Server, workload: Workload, entry: Entry) -> anyhow::Result<Values> {
    let database = server.database().await?;
    let values = match workload {
        Workload::Enqueue => enqueue(&database, entry).await,
        Workload::Drain => drain(&database, entry).await,
        Workload::Trickle => trickle(&database, entry).await,
    };
    database.drop().await?;
    values.with_context(|| format!("{workload:?} of {entry:?}"))
}

const PRODUCERS: u64 = 8;

/// Returns the number of jobs per second from the first call to the last commit, and the bytes of WAL per job.
async fn enqueue(database: &BenchDatabase, entry: Entry) -> anyhow::Result<Values> {
    let client = Client::install(entry.peer, entry.wakes, database).await?;
    let each = entry.jobs / PRODUCERS;
    let jobs = each * PRODUCERS;
    let mut connections = Vec::new();
    for _ in 0..PRODUCERS {
        connections.push(database.pool.acquire().await?);
    }
    let wal = database.wal().await?;
    let began = Instant::now();
    let mut producers = tokio::task::JoinSet::new();
    for (mut connection, producer) in connections.into_iter().zip(0..) {
        let client = client.clone();
        producers.spawn(async move {
            for n in 0..each {
                client.enqueue(&mut connection, Noop::numbered(producer * each + n)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = producers.join_next().await {
        ended??;
    }
    let elapsed = began.elapsed();
    let wal = database.wal().await? - wal;
    let left = client.left(&database.pool).await?;
    ensure!(left == jobs as i64, "{jobs} jobs were enqueued, but {left} exist");
    Ok([jobs as f64 / elapsed.as_secs_f64(), wal as f64 / jobs as f64])
}

/// Returns the number of jobs per second from the first line of the first handler until the queue is empty. Also returns the bytes of WAL
/// per job, measured while the worker process existed.
async fn drain(database: &BenchDatabase, entry: Entry) -> anyhow::Result<Values> {
    let Entry { peer, shape, wakes, jobs } = entry;
    let client = Client::install(peer, wakes, database).await?;
    client.fill(&database.pool, jobs).await?;
    let wal = database.wal().await?;
    let mut worker = WorkerProcess::start(database, peer, shape, jobs)?;
    let first = worker.reached().await?;
    wait_until_empty(&client, database).await?;
    let elapsed_ns = unix_ns().saturating_sub(first);
    count(worker, &client, database, entry).await?;
    let wal = database.wal().await? - wal;
    Ok([jobs as f64 * 1e9 / elapsed_ns as f64, wal as f64 / jobs as f64])
}

/// Interval between two enqueues.
const EVERY: Duration = Duration::from_millis(20);

/// Number of warm-up jobs. Their latencies are not measured, because they include opening connections and preparing statements.
const WARM: u64 = 20;

/// Returns the p50 and p99 latencies in milliseconds, from just before the enqueue to the first line of the handler.
async fn trickle(database: &BenchDatabase, entry: Entry) -> anyhow::Result<Values> {
    let client = Client::install(entry.peer, entry.wakes, database).await?;
    let mut worker = WorkerProcess::start(database, entry.peer, entry.shape, entry.jobs)?;
    let mut connection = database.pool.acquire().await?;
    // Gives the worker time to start and to find the queue empty. The libraries have no common interface that reports this state.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut clock = tokio::time::interval(EVERY);
    for n in 0..entry.jobs {
        clock.tick().await;
        let job = if n < WARM { Noop::numbered(n) } else { Noop::sent_now(n) };
        client.enqueue(&mut connection, job).await?;
    }
    worker.reached().await?;
    wait_until_empty(&client, database).await?;
    let waits = count(worker, &client, database, entry).await?;
    let percentile = |share: f64| waits.get((waits.len() as f64 * share) as usize).map_or(f64::NAN, |ns| *ns as f64 / 1e6);
    Ok([percentile(0.5), percentile(0.99)])
}

/// Waits until the queue is empty. All handlers have run, but the queue may not have recorded all completions yet.
async fn wait_until_empty(client: &Client, database: &BenchDatabase) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let left = client.left(&database.pool).await?;
        if left == 0 {
            return Ok(());
        }
        ensure!(began.elapsed() < Duration::from_secs(60), "{left} jobs are left; no verdict for a minute");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Stops the worker and checks that each job has run exactly once. Returns the latencies.
async fn count(worker: WorkerProcess, client: &Client, database: &BenchDatabase, entry: Entry) -> anyhow::Result<Vec<u64>> {
    let seen = worker.stop().await?;
    let jobs = entry.jobs;
    ensure!((seen.runs, seen.distinct) == (jobs, jobs), "{jobs} jobs enqueued, {} ran, in {} runs", seen.distinct, seen.runs);
    client.check_history(&database.pool, entry.shape == Shape::Archived, jobs).await?;
    Ok(seen.waits)
}
