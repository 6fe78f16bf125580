//! Template for the workers of many stores.

use queue_core::{
    Store,
    middleware::Middleware,
    options::Limit,
    registry::Registry,
    runner::States,
    schedule::{DeclaredSchedule, Schedule},
};
use sqlx::PgPool;
use std::sync::Arc;

use super::{Worker, unused::warn_of_unused};
use crate::{
    error::Error,
    live::{Config, LeaseDeadline, LoopHealth},
    run::OutcomeObserver,
    tally::MetricsBuffer,
};

/// Worker without a pool: settings, state, hooks and middleware. All workers created from a template share state, hooks and middleware.
pub(crate) struct WorkerTemplate {
    config: Config,
    states: States,
    registry: Option<Registry>,
    observer: OutcomeObserver,
    middleware: Vec<Arc<dyn Middleware>>,
    declared: Vec<DeclaredSchedule>,
    schedules: Vec<(String, Schedule)>,
    limits: Vec<(String, Limit)>,
}

/// Hooks that are called once the process is ready.
pub(crate) type ReadyHooks = Vec<Box<dyn FnOnce() + Send>>;

impl Worker {
    /// Checks the worker and converts it to a template. Also returns the ready hooks.
    pub(crate) fn into_template(self) -> Result<(WorkerTemplate, ReadyHooks), Error> {
        let Self { pool, config, states, registry, observer, middleware, ready, broken, declared, schedules, limits, .. } = self;
        if let Some(error) = broken {
            return Err(error.into());
        }
        let template = WorkerTemplate { config, states, registry, observer, middleware, declared, schedules, limits };
        template.worker(pool).check((LoopHealth::default(), LeaseDeadline::new(), MetricsBuffer::default()), None)?;
        Ok((template, ready))
    }
}

impl WorkerTemplate {
    /// Warns about queues that receive no jobs in any store.
    pub(crate) async fn warn_of_unused(&self, stores: &[(&PgPool, Store)]) {
        // `Registry::linked` cannot fail, because the job types were checked when the template was created.
        let registry = self.registry.clone().map_or_else(Registry::linked, Ok).unwrap_or_default();
        warn_of_unused(&self.config, &registry, stores).await;
    }

    /// Creates a worker with the given pool.
    pub(crate) fn worker(&self, pool: PgPool) -> Worker {
        Worker {
            config: self.config.clone(),
            states: self.states.clone(),
            registry: self.registry.clone(),
            observer: self.observer.clone(),
            middleware: self.middleware.clone(),
            declared: self.declared.clone(),
            schedules: self.schedules.clone(),
            limits: self.limits.clone(),
            ..Worker::new(pool)
        }
    }
}
