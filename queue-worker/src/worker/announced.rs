//! What follows from whether this worker is announced.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    live::{Bell, Identity},
    run::Queues,
};

/// Calls the hooks once this worker is announced; never, if it ends before.
pub(super) async fn tell_ready(mut identity: watch::Receiver<Identity>, hooks: Vec<Box<dyn FnOnce() + Send>>) {
    if identity.wait_for(Identity::is_some).await.is_ok() {
        for hook in hooks {
            hook();
        }
    }
}

/// Drops everything at once when this worker's right to its jobs is lost.
pub(super) async fn fence((mut identity, queues, bell): (watch::Receiver<Identity>, Arc<Queues>, Arc<Bell>)) {
    while identity.changed().await.is_ok() {
        if identity.borrow_and_update().is_none() {
            queues.abandon();
            // What was paused meanwhile waits for no worker that is silent.
            queues.pauses().forget();
        }
        // Whatever the next one needs is read at once, and not at the next poll.
        bell.ring();
    }
}

/// Drops every handler when the worker goes without having been stopped.
pub(super) struct Abandon(pub(super) Arc<Queues>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
