//! The benchmark: what this queue costs, each figure beside the same shape in plain SQL, measured in the same run.
//!
//! Works in a database of its own, which it creates on the given server and drops at the end. Every workload counts its jobs afterwards: a
//! job that is missing, or that ran twice, is an error, however fast it was. It uses what any user of the queue may use.

// How it is asked, what is measured, then with what.
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

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How often each figure is measured.
    pub(crate) runs: usize,
    /// Of the sizes and spans below.
    pub(crate) scale: f64,
}

impl Plan {
    /// A number of jobs, scaled; never so few that a batch would not be filled.
    fn jobs(&self, full: u64) -> u64 {
        ((full as f64 * self.scale) as u64).max(200)
    }

    /// A span of seconds, scaled; never shorter than half of one.
    fn seconds(&self, full: f64) -> std::time::Duration {
        std::time::Duration::from_secs_f64((full * self.scale).max(0.5))
    }
}

/// The workloads, by what they are.
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
    /// In the order of their numbers. W6 is what W3 costs.
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

    async fn run(self, database: &mut BenchDatabase, plan: Plan, say: &mut Say<'_>) -> Result<(), BenchError> {
        match self {
            Self::EnqueueOne => produce::one(database, plan, say).await,
            Self::EnqueueMany => produce::many(database, plan, say).await,
            Self::Drain => drain::run(database, plan, say).await,
            Self::Trickle => trickle::run(database, plan, say).await,
            Self::Behind => behind::run(database, plan, say).await,
            Self::HeldSnapshot => held::run(database, plan, say).await,
            Self::Steady => steady::run(database, plan, say).await,
            Self::Lanes => lanes::run(database, plan, say).await,
            Self::Keyed => keyed::run(database, plan, say).await,
            Self::HeldTransactions => produce::slowly(database, plan, say).await,
            Self::Limited => limited::run(database, plan, say).await,
            Self::ByKey => limited::run_by_key(database, plan, say).await,
            Self::RatedByKey => limited::run_rated(database, plan, say).await,
            Self::Fair => limited::run_fair(database, plan, say).await,
            Self::Steps => flows::run(database, plan, say).await,
            Self::Fans => fans::run(database, plan, say).await,
        }
    }
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The queue did something else than run each job once.
    #[error("{workload}: {what}")]
    Wrong { workload: &'static str, what: String },
    /// The worker's process could not be started, or ended by itself.
    #[error("the worker's process {0}")]
    Process(String),
    /// Somebody asked for the end.
    #[error("interrupted; the bench's database is dropped")]
    Interrupted,
    /// What is shown cannot be shown.
    #[error("cannot write to stdout: {0}")]
    Show(#[from] std::io::Error),
    /// The store failed.
    #[error(transparent)]
    Queue(#[from] queue_worker::Error),
    /// As above, in a statement of the bench.
    #[error("{}", queue_core::message(.0))]
    Database(#[from] sqlx::Error),
}

impl From<queue_core::Error> for BenchError {
    fn from(error: queue_core::Error) -> Self {
        Self::Queue(error.into())
    }
}

/// Where figures go as soon as they are known.
struct Say<'s>(&'s mut (dyn FnMut(Report) -> Result<(), BenchError> + Send));

impl Say<'_> {
    fn figure(&mut self, record: Record) -> Result<(), BenchError> {
        (self.0)(Report::Figure(record))
    }

    fn figures(&mut self, records: impl IntoIterator<Item = Record>) -> Result<(), BenchError> {
        records.into_iter().try_for_each(|record| self.figure(record))
    }
}

/// Runs the workloads in their order, in a database of their own on this server.
///
/// # Errors
/// When a workload lost, doubled or left over a job; when the server or a worker's process failed.
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
    let mut say = Say(show);
    for workload in workloads {
        workload.run(database, plan, &mut say).await?;
    }
    Ok(())
}
