//! Benchmark that measures the cost of this queue. Many results are compared with a baseline from the same run, such as the same operations
//! in plain SQL.
//!
//! The benchmark creates its own database on the given server and drops it at the end. Every workload counts its jobs afterwards and fails
//! if a job is missing or ran twice. Jobs are enqueued and run through public interfaces, but W9 and F6 also call internal functions.

// The modules are in the order command line, workloads, tools.
mod cli;
mod produce;
mod drain;
mod behind;
mod held;
mod lanes;
mod keyed;
mod limited;
mod flows;
mod fans;
mod stores;
mod trickle;
mod steady;
mod line;
mod sizes;
mod process;
mod job;
mod measure;
mod database;
mod report;

pub use cli::main;

use queue_worker::{Database, shutdown_signal};

use crate::{
    database::BenchDatabase,
    report::{Record, Report},
};

/// Settings of a benchmark run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of runs per result.
    pub(crate) runs: usize,
    /// Factor that scales the sizes and durations.
    pub(crate) scale: f64,
}

impl Plan {
    /// Returns the scaled number of jobs, which is at least 200.
    fn jobs(&self, full: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(200)
    }

    /// Returns the scaled duration, which is at least half a second. `full` is in seconds.
    fn seconds(&self, full: f64) -> std::time::Duration {
        std::time::Duration::from_secs_f64((full * self.scale).max(0.5))
    }
}

/// Workloads of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// W1: enqueues one job per transaction.
    EnqueueOne,
    /// W2: enqueues many jobs per call.
    EnqueueMany,
    /// W3 and W6: drains ready jobs and measures the cost of a job.
    Drain,
    /// W4: measures the latency on an idle worker.
    Trickle,
    /// W5: drains the first jobs of a large store.
    Behind,
    /// W7: runs jobs while a session holds a snapshot.
    HeldSnapshot,
    /// W8: runs a producer and a worker together.
    Steady,
    /// W9: drains and polls many lanes.
    Lanes,
    /// W10: drains jobs with ordering keys.
    Keyed,
    /// W11: enqueues jobs in transactions that stay open.
    HeldTransactions,
    /// L1: drains jobs under one limit.
    Limited,
    /// L2: drains jobs under per-key limits.
    ByKey,
    /// L4: drains jobs under a per-key rate limit.
    RatedByKey,
    /// L3: drains fair queues.
    Fair,
    /// F1, F2 and F3: journals steps.
    Steps,
    /// F4, F5 and F6: runs maps and wakes parked jobs.
    Fans,
    /// S1: drains stores on several servers.
    Stores,
}

impl Workload {
    /// Workloads by name, in order. Some names select the same workload: W6, for example, is the cost of the jobs in W3.
    pub(crate) const ALL: [(&str, Self); 22] = [
        ("W1", Self::EnqueueOne),
        ("W2", Self::EnqueueMany),
        ("W3", Self::Drain),
        ("W4", Self::Trickle),
        ("W5", Self::Behind),
        ("W6", Self::Drain),
        ("W7", Self::HeldSnapshot),
        ("W8", Self::Steady),
        ("W9", Self::Lanes),
        ("W10", Self::Keyed),
        ("W11", Self::HeldTransactions),
        ("L1", Self::Limited),
        ("L2", Self::ByKey),
        ("L3", Self::Fair),
        ("L4", Self::RatedByKey),
        ("F1", Self::Steps),
        ("F2", Self::Steps),
        ("F3", Self::Steps),
        ("F4", Self::Fans),
        ("F5", Self::Fans),
        ("F6", Self::Fans),
        ("S1", Self::Stores),
    ];

    async fn run(self, database: &mut BenchDatabase, plan: Plan, sink: &mut FigureSink<'_>) -> Result<(), BenchError> {
        match self {
            Self::EnqueueOne => produce::one(database, plan, sink).await,
            Self::EnqueueMany => produce::many(database, plan, sink).await,
            Self::Drain => drain::run(database, plan, sink).await,
            Self::Trickle => trickle::run(database, plan, sink).await,
            Self::Behind => behind::run(database, plan, sink).await,
            Self::HeldSnapshot => held::run(database, plan, sink).await,
            Self::Steady => steady::run(database, plan, sink).await,
            Self::Lanes => lanes::run(database, plan, sink).await,
            Self::Keyed => keyed::run(database, plan, sink).await,
            Self::HeldTransactions => produce::slowly(database, plan, sink).await,
            Self::Limited => limited::run(database, plan, sink).await,
            Self::ByKey => limited::run_by_key(database, plan, sink).await,
            Self::RatedByKey => limited::run_rated(database, plan, sink).await,
            Self::Fair => limited::run_fair(database, plan, sink).await,
            Self::Steps => flows::run(database, plan, sink).await,
            Self::Fans => fans::run(database, plan, sink).await,
            Self::Stores => stores::run(plan, sink).await,
        }
    }
}

/// Reasons why a measurement fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A check of the benchmark failed, for example because the queue did not run each job exactly once.
    #[error("{workload}: {what}")]
    Wrong { workload: &'static str, what: String },
    /// A process or task of the benchmark failed, for example a worker process that exited by itself.
    #[error("the worker process {0}")]
    Process(String),
    /// A shutdown signal was received.
    #[error("interrupted; the database of the bench was dropped")]
    Interrupted,
    /// A result could not be printed.
    #[error("cannot write to stdout: {0}")]
    Show(#[from] std::io::Error),
    /// Error of the queue library.
    #[error(transparent)]
    Queue(#[from] queue_worker::Error),
    /// Error of a statement that the benchmark executed itself.
    #[error("{}", queue_core::message(.0))]
    Database(#[from] sqlx::Error),
}

impl From<queue_core::Error> for BenchError {
    fn from(error: queue_core::Error) -> Self {
        Self::Queue(error.into())
    }
}

/// Sink that prints each result as soon as it is available.
struct FigureSink<'s>(&'s mut (dyn FnMut(Report) -> Result<(), BenchError> + Send));

impl FigureSink<'_> {
    fn figure(&mut self, record: Record) -> Result<(), BenchError> {
        (self.0)(Report::Figure(record))
    }

    fn figures(&mut self, records: impl IntoIterator<Item = Record>) -> Result<(), BenchError> {
        records.into_iter().try_for_each(|record| self.figure(record))
    }
}

/// Runs the workloads in the given order, in a separate database on the server.
///
/// # Errors
/// Returns an error if a job was lost, ran twice or was left unfinished, if the server or a worker process failed, or if the run was
/// interrupted.
pub(crate) async fn run(
    server: &Database,
    workloads: &[Workload],
    plan: Plan,
    mut show: impl FnMut(Report) -> Result<(), BenchError> + Send,
) -> Result<(), BenchError> {
    let mut database = BenchDatabase::create(server).await?;
    let done = tokio::select! {
        done = run_all(&mut database, workloads, plan, &mut show) => done,
        () = shutdown_signal() => Err(BenchError::Interrupted),
    };
    let dropped = database.drop().await;
    done.and(dropped)
}

async fn run_all(
    database: &mut BenchDatabase,
    workloads: &[Workload],
    plan: Plan,
    show: &mut (dyn FnMut(Report) -> Result<(), BenchError> + Send),
) -> Result<(), BenchError> {
    show(Report::Server(database.describe().await?))?;
    let mut sink = FigureSink(show);
    for workload in workloads {
        workload.run(database, plan, &mut sink).await?;
    }
    Ok(())
}
