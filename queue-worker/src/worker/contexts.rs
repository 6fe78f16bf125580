//! What the loops of transactional jobs have in common with the slots beside them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    live::Config,
    run::{Queues, TransactContext},
};

/// For the transactional jobs of the worker that has these slots.
pub(super) fn beside(queues: &Queues, config: &Config, stop: &CancellationToken) -> TransactContext {
    let slots = &queues.context;
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
        hands: queues.hands.clone(),
    }
}
