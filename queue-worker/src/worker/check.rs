//! Validation of a worker's settings and job types.

use queue_core::{registry::Registry, schedule::DeclaredSchedule};

use super::{
    Worker,
    parts::{CheckedWorker, SharedResources, WorkerParts, warn_missing_keyring},
    schedules::declarations,
};
use crate::{
    error::Error,
    live::{LeaseDeadline, LoopHealth, OwnLimits},
    tally::MetricsBuffer,
};

impl Worker {
    /// Checks the settings and job types without a database. Returns the components of the checked worker.
    pub(crate) fn check(
        self,
        (loop_health, lease_deadline, metrics): (LoopHealth, LeaseDeadline, MetricsBuffer),
        resources: Option<SharedResources>,
    ) -> Result<CheckedWorker, Error> {
        let Self { pool, direct, config, states, registry, observer, middleware, ready, broken, declared, schedules, limits, .. } = self;
        config.check()?;
        let direct = direct.unwrap_or_else(|| pool.clone());
        if let Some(error) = broken {
            return Err(error.into());
        }
        let declared = if registry.is_some() { declared } else { DeclaredSchedule::linked().collect() };
        let registry = registry.map_or_else(Registry::linked, Ok)?.served(warn_missing_keyring)?;
        registry.check(&states)?;
        let (declared, foreign): (Vec<_>, Vec<_>) = declared.into_iter().partition(|schedule| registry.get(schedule.job_type()).is_some());
        for (schedule, _) in foreign.into_iter().filter_map(DeclaredSchedule::named) {
            tracing::info!(schedule, "schedule of a job type without a handler in this program; workers that have the handler create it");
        }
        let declares = declarations(declared.into_iter().filter_map(DeclaredSchedule::named).chain(schedules), config.store)?;
        let registry = registry.with_ours()?;
        let limits = OwnLimits::new(&registry, &config.queues, &limits)?;
        let parts = WorkerParts {
            registry,
            states,
            observer,
            middleware,
            declares,
            limits,
            days: None,
            loop_health,
            lease_deadline,
            metrics,
            resources,
        };
        Ok(CheckedWorker { pool, direct, config, ready, parts })
    }
}
