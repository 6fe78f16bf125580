//! The measurements, one of one queue each: a database is made, the queue installed, the workload run, and every job counted. A job lost or
//! run twice is an error; there is no figure for it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::{
    client::{Client, Peer},
    database::{BenchDatabase, Server},
    job::{Noop, unix_ns},
    process::WorkerProcess,
    worker::Shape,
};

/// Which workload; `docs/PERFORMANCE.md` has their definitions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    /// One job a transaction.
    Enqueue,
    /// Ready jobs, one worker process.
    Drain,
    /// An idle worker, a job every 20 ms.
    Trickle,
}

/// A queue in a workload, and how it is set up there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) peer: Peer,
    pub(crate) shape: Shape,
    /// See [`Client::install`].
    pub(crate) wakes: bool,
    pub(crate) jobs: u64,
}

/// What one measurement found: as many values as the workload has figures, in their order.
pub(crate) type Values = [f64; 2];

/// Measures once.
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

/// Jobs a second from the first call to the last commit, and bytes of WAL a job.
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
    ensure!(left == jobs as i64, "{jobs} jobs were enqueued, and {left} are there");
    Ok([jobs as f64 / elapsed.as_secs_f64(), wal as f64 / jobs as f64])
}

/// Jobs a second from the first line of the first handler until nothing is left, durably; and bytes of WAL a job, of the worker's whole
/// life.
async fn drain(database: &BenchDatabase, entry: Entry) -> anyhow::Result<Values> {
    let Entry { peer, shape, wakes, jobs } = entry;
    let client = Client::install(peer, wakes, database).await?;
    client.fill(&database.pool, jobs).await?;
    let wal = database.wal().await?;
    let mut worker = WorkerProcess::start(database, peer, shape, jobs)?;
    let first = worker.reached().await?;
    until_nothing_is_left(&client, database).await?;
    let elapsed_ns = unix_ns().saturating_sub(first);
    count(worker, &client, database, entry).await?;
    let wal = database.wal().await? - wal;
    Ok([jobs as f64 * 1e9 / elapsed_ns as f64, wal as f64 / jobs as f64])
}

/// Between two jobs.
const EVERY: Duration = Duration::from_millis(20);

/// The first jobs make everybody's connections and plans, and are not counted.
const WARM: u64 = 20;

/// Milliseconds from just before the enqueue to the first line of the handler: p50 and p99.
async fn trickle(database: &BenchDatabase, entry: Entry) -> anyhow::Result<Values> {
    let client = Client::install(entry.peer, entry.wakes, database).await?;
    let mut worker = WorkerProcess::start(database, entry.peer, entry.shape, entry.jobs)?;
    let mut connection = database.pool.acquire().await?;
    // Until the worker has started and found nothing; none of them says so in a way that all have.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut clock = tokio::time::interval(EVERY);
    for n in 0..entry.jobs {
        clock.tick().await;
        let job = if n < WARM { Noop::numbered(n) } else { Noop::sent_now(n) };
        client.enqueue(&mut connection, job).await?;
    }
    worker.reached().await?;
    until_nothing_is_left(&client, database).await?;
    let waits = count(worker, &client, database, entry).await?;
    let percentile = |share: f64| waits.get((waits.len() as f64 * share) as usize).map_or(f64::NAN, |ns| *ns as f64 / 1e6);
    Ok([percentile(0.5), percentile(0.99)])
}

/// All handlers have run; their verdicts may be on their way. A count of a table full of dead rows is not cheap, so it is not asked often.
async fn until_nothing_is_left(client: &Client, database: &BenchDatabase) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let left = client.left(&database.pool).await?;
        if left == 0 {
            return Ok(());
        }
        ensure!(began.elapsed() < Duration::from_secs(60), "{left} jobs are left, and no verdict came for a minute");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Stops the worker; each job must have run, and once. Returns how long they waited.
async fn count(worker: WorkerProcess, client: &Client, database: &BenchDatabase, entry: Entry) -> anyhow::Result<Vec<u64>> {
    let seen = worker.stop().await?;
    let jobs = entry.jobs;
    ensure!((seen.runs, seen.distinct) == (jobs, jobs), "of {jobs} jobs {} ran, in {} runs", seen.distinct, seen.runs);
    client.check_history(&database.pool, entry.shape == Shape::Archived, jobs).await?;
    Ok(seen.waits)
}
