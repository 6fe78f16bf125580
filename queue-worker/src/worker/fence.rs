//! Reactions to changes in the worker's identity: ready hooks and fencing.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    live::{Identity, Notifier},
    run::Queues,
};

/// Calls the hooks once the worker is registered. If the worker ends earlier, the hooks are never called.
pub(super) async fn call_ready_hooks(mut identity: watch::Receiver<Identity>, hooks: Vec<Box<dyn FnOnce() + Send>>) {
    if identity.wait_for(Identity::is_some).await.is_ok() {
        for hook in hooks {
            hook();
        }
    }
}

/// Drops all handlers and claimed jobs when the worker loses its lease.
pub(super) async fn fence((mut identity, queues, notifier): (watch::Receiver<Identity>, Arc<Queues>, Arc<Notifier>)) {
    while identity.changed().await.is_ok() {
        if identity.borrow_and_update().is_none() {
            queues.abandon();
            // A worker without a lease may have missed pauses, because operators do not wait for such a worker to acknowledge a pause.
            queues.pauses().forget();
        }
        // Wakes the poll loop, so that it reacts to the new identity immediately.
        notifier.request_probe();
    }
}

/// Guard that drops all handlers when the worker is dropped without being stopped.
pub(super) struct AbandonOnDrop(pub(super) Arc<Queues>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
