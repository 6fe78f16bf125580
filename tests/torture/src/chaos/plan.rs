//! Plans the faults. The time, target and duration of each fault are drawn from the seed before the first fault is injected.

use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Lease duration of the workers in a run.
pub(super) const TTL: Duration = Duration::from_secs(5);

/// Kind of a fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Kills a worker with SIGKILL.
    Kill,
    /// Stops a worker with SIGSTOP for longer than its lease duration, then continues the worker with SIGCONT.
    Stop,
    /// Kills the server with SIGKILL, then restarts the server.
    Server,
    /// Terminates a connection of a worker or a producer with `pg_terminate_backend`.
    Terminate,
    /// Cuts all connections of a process.
    Cut,
    /// Cuts a connection after the server has committed and before the response arrives.
    CommitCut,
    /// Delays every chunk of a process's traffic.
    Delay,
    /// Holds all traffic of a process for the duration of the fault, then delivers the traffic. No connection is refused.
    Hole,
    /// Discards all traffic of a process, then cuts the connections.
    Drop,
    /// Pauses everything, a queue or a job type. Once all workers have acknowledged the pause, no job in the scope may start until the
    /// fault ends.
    Pause,
}

/// Fault to be injected, with its time, target and duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlannedFault {
    pub(super) at: Duration,
    pub(super) kind: Kind,
    /// Index of the target. The injector takes it modulo the number of candidates.
    pub(super) target: usize,
    /// Duration of the fault. For a killed target, the delay before the restart.
    pub(super) lasts: Duration,
}

/// Size and faults of a run.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    pub(super) jobs: u64,
    pub(super) workers: usize,
    pub(super) producers: usize,
    /// Number of schedules with one tick per second, in addition to the schedule that workers declare.
    pub(super) schedules: usize,
    /// Time during which faults are injected and jobs are enqueued.
    pub(super) span: Duration,
    pub(super) faults: Vec<(Kind, usize)>,
    pub(super) zombies: usize,
    /// Duration of the phase that keeps the CPU busy without any fault.
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

/// Returns the planned faults, ordered by time. The faults of each kind are spread evenly over `span`, with jitter.
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
                // Every third `Hole` lasts longer than a lease.
                Kind::Hole if place % 3 == 1 => 6000..7500,
                Kind::Hole | Kind::Drop => 300..1500,
                Kind::Pause => 200..1000,
            };
            // Pauses cycle through the scopes.
            let target = if *kind == Kind::Pause { place } else { rng.usize(..) };
            plan.push(PlannedFault { at, kind: *kind, target, lasts: Duration::from_millis(rng.u64(ms)) });
        }
    }
    plan.sort_by_key(|fault| fault.at);
    plan
}
