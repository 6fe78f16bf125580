//! The benchmark: measures the cost of this queue. Each figure is compared with the same shape in plain SQL, measured in the same run.
//!
//! Uses a database of its own, which it creates on the given server and drops at the end. Every workload counts its jobs afterwards: a
//! missing job or one that ran twice is an error. It uses only what any user of the queue can use.

// The command line, then the workloads, then their tools.
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

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of runs per figure.
    pub(crate) runs: usize,
    /// Scale of the sizes and durations below.
    pub(crate) scale: f64,
}

impl Plan {
    /// Returns a scaled number of jobs, at least enough to fill a batch.
    fn jobs(&self, full: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(200)
    }

    /// Returns a scaled duration, at least half a second.
    fn seconds(&self, full: f64) -> std::time::Duration {
        std::time::Duration::from_secs_f64((full * self.scale).max(0.5))
    }
}

/// The workloads by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// W1
    EnqueueOne,
    /// W2
    EnqueueMany,
    /// W3 and W6
    Drain,
    /// W4
    Trickle,
    /// W5
    Behind,
    /// W7
    HeldSnapshot,
    /// W8
    Steady,
    /// W9
    Lanes,
    /// W10
    Keyed,
    /// W11
    HeldTransactions,
    /// L1
    Limited,
    /// L2
    ByKey,
    /// L4
    RatedByKey,
    /// L3
    Fair,
    /// F1, F2 and F3
    Steps,
    /// F4, F5 and F6
    Fans,
}

impl Workload {
    /// The workloads in the order of their numbers. W6 is the cost of W3.
    pub(crate) const ALL: [(&str, Self); 21] = [
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
        }
    }
}

/// Error of a measurement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The queue did not run each job exactly once.
    #[error("{workload}: {what}")]
    Wrong { workload: &'static str, what: String },
    /// The worker process could not be started, or exited by itself.
    #[error("the worker process {0}")]
    Process(String),
    /// A shutdown signal arrived.
    #[error("interrupted; the database of the bench was dropped")]
    Interrupted,
    /// A figure could not be printed.
    #[error("cannot write to stdout: {0}")]
    Show(#[from] std::io::Error),
    /// The store failed.
    #[error(transparent)]
    Queue(#[from] queue_worker::Error),
    /// A statement of the bench failed.
    #[error("{}", queue_core::message(.0))]
    Database(#[from] sqlx::Error),
}

impl From<queue_core::Error> for BenchError {
    fn from(error: queue_core::Error) -> Self {
        Self::Queue(error.into())
    }
}

/// Output of figures as soon as they are known.
struct FigureSink<'s>(&'s mut (dyn FnMut(Report) -> Result<(), BenchError> + Send));

impl FigureSink<'_> {
    fn figure(&mut self, record: Record) -> Result<(), BenchError> {
        (self.0)(Report::Figure(record))
    }

    fn figures(&mut self, records: impl IntoIterator<Item = Record>) -> Result<(), BenchError> {
        records.into_iter().try_for_each(|record| self.figure(record))
    }
}

/// Runs the workloads in the given order, in a separate database on this server.
///
/// # Errors
/// If a workload lost, duplicated or left a job, or if the server or a worker process failed.
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
