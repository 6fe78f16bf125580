//! The planned faults: kind, time and target are drawn from the seed before anything starts.

use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Lease duration of the workers in a run.
pub(super) const TTL: Duration = Duration::from_secs(5);

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// SIGKILL of a worker.
    Kill,
    /// SIGSTOP of a worker for longer than the TTL, then SIGCONT.
    Stop,
    /// SIGKILL of the server, then a restart.
    Server,
    /// `pg_terminate_backend` of a connection of a worker or a producer.
    Terminate,
    /// Cuts all connections of a process.
    Cut,
    /// Cuts a connection after its commit, before the reply.
    CommitCut,
    /// Delays every chunk of a process.
    Delay,
    /// Holds all traffic of a process without refusing it, then delivers everything.
    Hole,
    /// Discards all traffic of a process, then cuts its connections.
    Drop,
    /// Pauses everything, the queue or a job type until every worker has acknowledged it, and for this long afterwards. Nothing in scope
    /// may start then.
    Pause,
}

/// One planned fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlannedFault {
    pub(super) at: Duration,
    pub(super) kind: Kind,
    /// Index of the target, modulo the number of candidates.
    pub(super) target: usize,
    /// Duration of the fault, or delay until its target is restarted.
    pub(super) lasts: Duration,
}

/// Size of a run.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    pub(super) jobs: u64,
    pub(super) workers: usize,
    pub(super) producers: usize,
    /// Schedules with one tick per second, besides the one that workers declare.
    pub(super) schedules: usize,
    /// Time during which faults are injected and jobs are enqueued.
    pub(super) span: Duration,
    pub(super) faults: Vec<(Kind, usize)>,
    pub(super) zombies: usize,
    /// Time during which both cores are kept busy without any fault.
    pub(super) saturation: Duration,
}

impl Scale {
    pub(super) fn full() -> Self {
        let faults = [(Kind::Kill, 200), (Kind::Stop, 100), (Kind::Server, 30), (Kind::Terminate, 1200), (Kind::Cut, 60)];
        let network = [(Kind::CommitCut, 100), (Kind::Delay, 40), (Kind::Hole, 30), (Kind::Drop, 30), (Kind::Pause, 15)];
        Self {
            jobs: 100_000,
            workers: 4,
            producers: 4,
            schedules: 20,
            span: Duration::from_mins(10),
            faults: faults.into_iter().chain(network).collect(),
            zombies: 500,
            saturation: Duration::from_secs(30),
        }
    }

    pub(super) fn quick() -> Self {
        let faults = [(Kind::Kill, 10), (Kind::Stop, 6), (Kind::Server, 2), (Kind::Terminate, 70), (Kind::Cut, 4)];
        let network = [(Kind::CommitCut, 8), (Kind::Delay, 3), (Kind::Hole, 3), (Kind::Drop, 2), (Kind::Pause, 3)];
        Self {
            jobs: 5000,
            workers: 4,
            producers: 4,
            schedules: 6,
            span: Duration::from_secs(35),
            faults: faults.into_iter().chain(network).collect(),
            zombies: 30,
            saturation: Duration::from_secs(8),
        }
    }
}

/// Returns the faults of a run in the order of their times. Each kind is spread evenly over the span, with jitter.
pub(super) fn plan(seed: u64, span: Duration, faults: &[(Kind, usize)]) -> Vec<PlannedFault> {
    let mut rng = Rng::with_seed(seed);
    let mut plan = Vec::new();
    for (kind, count) in faults {
        for place in 0..*count {
            let at = span.mul_f64((place as f64 + 0.1 + 0.8 * rng.f64()) / *count as f64);
            let ms = match kind {
                Kind::Kill => 200..800,
                Kind::Stop => 6000..8000,
                Kind::Server | Kind::Hole if place % 3 == 2 => 1500..2500,
                Kind::Server => 1..300,
                Kind::Terminate | Kind::Cut | Kind::CommitCut => 0..1,
                Kind::Delay => 2000..4000,
                // Every third lasts longer than a lease.
                Kind::Hole if place % 3 == 1 => 6000..7500,
                Kind::Hole | Kind::Drop => 300..1500,
                Kind::Pause => 200..1000,
            };
            // Pauses alternate between the scopes.
            let target = if *kind == Kind::Pause { place } else { rng.usize(..) };
            plan.push(PlannedFault { at, kind: *kind, target, lasts: Duration::from_millis(rng.u64(ms)) });
        }
    }
    plan.sort_by_key(|fault| fault.at);
    plan
}
