//! What the loops of transactional jobs have in common with the slots beside them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    live::Config,
    run::{SlotContext, TransactContext},
};

/// For the transactional jobs of the worker whose slots have this.
pub(super) fn beside(slots: &SlotContext, config: &Config, stop: &CancellationToken) -> TransactContext {
    TransactContext {
        config: config.clone(),
        registry: slots.registry.clone(),
        shared: Arc::clone(&slots.shared),
        bell: Arc::clone(&slots.bell),
        pauses: slots.pauses.clone(),
        life: slots.life.clone(),
        handlers: slots.handlers.clone(),
        stop: stop.clone(),
        teller: slots.teller.clone(),
        tallies: slots.tallies.clone(),
    }
}
