//! What a worker does the moment its right to its jobs is lost.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    live::{Bell, Identity},
    run::Queues,
};

/// Drops everything at once when this worker's right to its jobs is lost.
pub(super) async fn fence(mut identity: watch::Receiver<Identity>, queues: Arc<Queues>, bell: Arc<Bell>) {
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
