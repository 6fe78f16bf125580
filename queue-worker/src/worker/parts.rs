//! Components of a worker besides its settings.

use std::{sync::Arc, time::Duration};

use queue_core::{Middleware, Registry, runner::States, schedule::Declaration};
use sqlx::PgPool;

use crate::{
    live::{Config, ConnectionFactory, Engine, LeaseDeadline, ListenHandle, LoopHealth, OwnLimits, StoreConnection},
    run::{OutcomeObserver, StoreSlots},
    tally::MetricsBuffer,
};

/// Validated parts of a worker.
pub(crate) struct CheckedWorker {
    /// Pool of the handlers.
    pub(crate) pool: PgPool,
    /// Pool for the worker's own connections.
    pub(crate) direct: PgPool,
    pub(crate) config: Config,
    /// Called once the worker is registered.
    pub(crate) ready: Vec<Box<dyn FnOnce() + Send>>,
    pub(crate) parts: WorkerParts,
}

/// Components of a worker.
pub(crate) struct WorkerParts {
    pub(super) registry: Registry,
    pub(super) states: States,
    pub(super) observer: OutcomeObserver,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) declares: Vec<(String, Declaration)>,
    pub(super) limits: OwnLimits,
    /// Connection to the node that creates and drops partitions, if the jobs are on another node.
    pub(super) days: Option<StoreConnection>,
    pub(super) loop_health: LoopHealth,
    pub(super) lease_deadline: LeaseDeadline,
    pub(super) metrics: MetricsBuffer,
    /// Set if the worker is one of many in its process.
    pub(super) resources: Option<SharedResources>,
}

impl WorkerParts {
    /// Returns all names of the job types that it runs.
    pub(crate) fn job_types(&self) -> Vec<String> {
        self.registry.names().map(|(name, _)| name.to_owned()).collect()
    }
}

/// Resources that a worker shares with those of other stores.
pub(crate) struct SharedResources {
    /// Share of the process' slots.
    pub(crate) share: StoreSlots,
    /// Thread of all heartbeats, and the connection for this worker's.
    pub(crate) heartbeats: Engine,
    pub(crate) heartbeat: ConnectionFactory,
    /// Connection for pruning.
    pub(crate) prune: ConnectionFactory,
    /// Listener for all stores of the database, if there is one.
    pub(crate) listen_handle: Option<ListenHandle>,
    /// Delay before the first pruning.
    pub(crate) prune_in: Duration,
}

/// Warns about a type that is left to workers with its keyring.
pub(super) fn warn_missing_keyring(job_type: &str, keyring: &str) {
    tracing::warn!(
        job_type,
        keyring,
        "payloads of this type are sealed and this worker lacks the keyring, so it leaves these jobs to other workers; \
         pass the keyring to `queue_core::use_keyring` before the worker runs"
    );
}
