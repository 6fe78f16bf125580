//! What a worker is made with, for whoever makes one of it for each of many stores.

use queue_core::{
    Limit, Middleware, Registry, Store,
    runner::States,
    schedule::{Declared, Schedule},
};
use sqlx::PgPool;
use std::sync::Arc;

use super::{Worker, unused::warn_of_unused};
use crate::{
    error::Error,
    live::{Config, Life, Vitals},
    run::OutcomeObserver,
    tally::Tallies,
};

/// All of a worker but for where it works. Its state, hooks and middleware are shared by all that are made of it.
pub(crate) struct Prepared {
    config: Config,
    states: States,
    registry: Option<Registry>,
    teller: OutcomeObserver,
    middleware: Vec<Arc<dyn Middleware>>,
    declared: Vec<Declared>,
    schedules: Vec<(String, Schedule)>,
    limits: Vec<(String, Limit)>,
}

/// What is called once the process is ready.
pub(crate) type Ready = Vec<Box<dyn FnOnce() + Send>>;

impl Worker {
    /// Checks it as it is checked when it is run.
    pub(crate) fn into_prepared(self) -> Result<(Prepared, Ready), Error> {
        let Self { pool, config, states, registry, teller, middleware, ready, broken, declared, schedules, limits, .. } = self;
        if let Some(error) = broken {
            return Err(error.into());
        }
        let prepared = Prepared { config, states, registry, teller, middleware, declared, schedules, limits };
        prepared.worker(pool).checked((Vitals::default(), Life::new(), Tallies::default()), None)?;
        Ok((prepared, ready))
    }
}

impl Prepared {
    /// Warns of queues that get no jobs in any of these stores.
    pub(crate) async fn warn_of_unused(&self, stores: &[(&PgPool, Store)]) {
        // That its types can be run was checked when it was made.
        let registry = self.registry.clone().map_or_else(Registry::linked, Ok).unwrap_or_default();
        warn_of_unused(&self.config, &registry, stores).await;
    }

    /// A worker over this pool.
    pub(crate) fn worker(&self, pool: PgPool) -> Worker {
        Worker {
            config: self.config.clone(),
            states: self.states.clone(),
            registry: self.registry.clone(),
            teller: self.teller.clone(),
            middleware: self.middleware.clone(),
            declared: self.declared.clone(),
            schedules: self.schedules.clone(),
            limits: self.limits.clone(),
            ..Worker::new(pool)
        }
    }
}
