//! What a worker is made of besides its settings.

use std::{sync::Arc, time::Duration};

use queue_core::{Middleware, Registry, runner::States, schedule::Declaration};
use sqlx::PgPool;

use crate::{
    live::{Config, Ears, Engine, Life, Link, OwnLimits, Vitals, Wires},
    run::{OutcomeObserver, StoreSlots},
    tally::Tallies,
};

/// What a worker is started with.
pub(crate) struct Checked {
    /// That of the handlers.
    pub(crate) pool: PgPool,
    /// Where its own connections lead.
    pub(crate) direct: PgPool,
    pub(crate) config: Config,
    /// To be told once it is announced.
    pub(crate) ready: Vec<Box<dyn FnOnce() + Send>>,
    pub(crate) given: Given,
}

/// What a worker was given, and how it does.
pub(crate) struct Given {
    pub(super) registry: Registry,
    pub(super) states: States,
    pub(super) teller: OutcomeObserver,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) declares: Vec<(String, Declaration)>,
    pub(super) limits: OwnLimits,
    /// To where days are made and dropped, if that is not where the jobs are.
    pub(super) days: Option<Link>,
    pub(super) vitals: Vitals,
    pub(super) life: Life,
    pub(super) tallies: Tallies,
    /// If it is one of many in its process.
    pub(super) beside: Option<Beside>,
}

impl Given {
    /// Whose jobs it runs, by all their names.
    pub(crate) fn job_types(&self) -> Vec<String> {
        self.registry.names().map(|(name, _)| name.to_owned()).collect()
    }
}

/// What the workers of many stores have in common.
pub(crate) struct Beside {
    /// Of the slots of all.
    pub(crate) share: StoreSlots,
    /// The thread on which the hearts of all beat, and the connection on which this one does.
    pub(crate) hearts: Engine,
    pub(crate) heart: Wires,
    /// What it prunes on.
    pub(crate) prune: Wires,
    /// Who listens for all of its database, if somebody does.
    pub(crate) ears: Option<Ears>,
    /// When it is to prune first.
    pub(crate) prune_in: Duration,
}

/// Of a type that is left to other workers.
pub(super) fn complain_of_keyring(job_type: &str, keyring: &str) {
    tracing::warn!(
        job_type,
        keyring,
        "payloads of this type are sealed, and this worker does not have the keyring: it leaves such jobs to workers that do; \
         give it with `queue_core::use_keyring` before the worker runs"
    );
}
