//! Components of a worker other than its settings.

use std::{sync::Arc, time::Duration};

use queue_core::{Middleware, Registry, runner::States, schedule::Declaration};
use sqlx::PgPool;

use crate::{
    live::{Config, ConnectionFactory, Engine, LeaseDeadline, ListenHandle, LoopHealth, OwnLimits, StoreConnection},
    run::{OutcomeObserver, StoreSlots},
    tally::MetricsBuffer,
};

/// Settings and components of a worker whose configuration has been checked.
pub(crate) struct CheckedWorker {
    /// Pool shared with the handlers.
    pub(crate) pool: PgPool,
    /// Pool for the worker's own connections.
    pub(crate) direct: PgPool,
    pub(crate) config: Config,
    /// Hooks that are called once the worker is registered.
    pub(crate) ready: Vec<Box<dyn FnOnce() + Send>>,
    pub(crate) parts: WorkerParts,
}

/// Registry, hooks, limits and metrics with which a worker is started.
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
    /// Resources shared with the workers of other stores. Set if the process serves many stores.
    pub(super) resources: Option<SharedResources>,
}

impl WorkerParts {
    /// Returns all names of the job types that the worker runs.
    pub(crate) fn job_types(&self) -> Vec<String> {
        self.registry.names().map(|(name, _)| name.to_owned()).collect()
    }
}

/// Resources that a worker shares with the workers of other stores.
pub(crate) struct SharedResources {
    /// The store's share of the process's slots.
    pub(crate) share: StoreSlots,
    /// Thread that sends the heartbeats of all workers, and the connection for this worker's heartbeats.
    pub(crate) heartbeats: Engine,
    pub(crate) heartbeat: ConnectionFactory,
    /// Connection for pruning.
    pub(crate) prune: ConnectionFactory,
    /// Listener shared by all stores of the database, if there is one.
    pub(crate) listen_handle: Option<ListenHandle>,
    /// Delay before the first pruning.
    pub(crate) prune_in: Duration,
}

/// Warns that jobs of a type are left to workers that have the type's keyring.
pub(super) fn warn_missing_keyring(job_type: &str, keyring: &str) {
    tracing::warn!(
        job_type,
        keyring,
        "payloads of this type are sealed and this worker lacks the keyring, so it leaves these jobs to other workers; \
         pass the keyring to `queue_core::use_keyring` before the worker runs"
    );
}
