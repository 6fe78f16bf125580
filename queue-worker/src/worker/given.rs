//! What a worker is made of besides its settings.

use std::sync::Arc;

use queue_core::{Middleware, Registry, runner::States, schedule::Declaration};

use crate::{
    live::{Life, OwnLimits, Vitals},
    run::Teller,
    tally::Tallies,
};

/// What a worker was given, and how it does.
pub(super) struct Given {
    pub(super) registry: Registry,
    pub(super) states: States,
    pub(super) teller: Teller,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) declares: Vec<(String, Declaration)>,
    pub(super) limits: OwnLimits,
    pub(super) vitals: Vitals,
    pub(super) life: Life,
    pub(super) tallies: Tallies,
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
