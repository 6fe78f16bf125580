//! Components of a worker apart from its settings, such as the registry and the hooks. Also contains the resources that the workers of
//! several stores share.

use std::{sync::Arc, time::Duration};

use queue_core::{middleware::Middleware, registry::Registry, runner::States, schedule::Declaration};
use sqlx::PgPool;

use crate::{
    live::{Config, ConnectionFactory, Engine, LeaseDeadline, ListenHandle, LoopHealth, OwnLimits, StoreConnection},
    run::{OutcomeObserver, StoreSlots},
    tally::MetricsBuffer,
};

/// Settings and components of a worker with a valid configuration.
pub(crate) struct CheckedWorker {
    /// Pool shared with the handlers.
    pub(crate) pool: PgPool,
    /// Pool whose options the worker's dedicated connections use.
    pub(crate) direct: PgPool,
    pub(crate) config: Config,
    /// Hooks to call when the worker is registered and claims jobs.
    pub(crate) ready: Vec<Box<dyn FnOnce() + Send>>,
    pub(crate) parts: WorkerParts,
}

/// Registry, hooks, limits and metrics of a worker that is about to start.
pub(crate) struct WorkerParts {
    pub(super) registry: Registry,
    pub(super) states: States,
    pub(super) observer: OutcomeObserver,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) declares: Vec<(String, Declaration)>,
    pub(super) limits: OwnLimits,
    /// Connection to the cluster's coordinator, for creating and dropping partitions. `None` if the store is not distributed.
    pub(super) days: Option<StoreConnection>,
    pub(super) loop_health: LoopHealth,
    pub(super) lease_deadline: LeaseDeadline,
    pub(super) metrics: MetricsBuffer,
    /// Resources shared with the workers of other stores. `None` unless a [`StoresWorker`](crate::StoresWorker) runs this worker.
    pub(super) resources: Option<SharedResources>,
}

impl WorkerParts {
    /// Returns all names, including aliases, of the job types that the worker runs.
    pub(crate) fn job_types(&self) -> Vec<String> {
        self.registry.names().map(|(name, _)| name.to_owned()).collect()
    }
}

/// Resources that a worker shares with the workers of other stores.
pub(crate) struct SharedResources {
    /// The store's handle to the process's slots.
    pub(crate) share: StoreSlots,
    /// Thread for the heartbeats of all workers.
    pub(crate) heartbeats: Engine,
    /// Factory for the connection of this worker's heartbeats.
    pub(crate) heartbeat: ConnectionFactory,
    /// Factory for the pruning connection.
    pub(crate) prune: ConnectionFactory,
    /// Notification listener shared by all stores in the database. `None` if the database has a single store.
    pub(crate) listen_handle: Option<ListenHandle>,
    /// Delay before the worker's first pruning.
    pub(crate) prune_in: Duration,
}

/// Warns that this worker leaves the jobs of a type to workers that have the type's keyring.
pub(super) fn warn_missing_keyring(job_type: &str, keyring: &str) {
    tracing::warn!(
        job_type,
        keyring,
        "payloads of this type are sealed and this worker lacks the keyring, so it leaves these jobs to other workers; \
         pass the keyring to `queue_core::use_keyring` before the worker runs"
    );
}
