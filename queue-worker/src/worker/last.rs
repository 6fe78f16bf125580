//! The last of a worker: what is given back, and what is waited for.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use crate::{run::Slots, settle::Settlement};

/// Handlers that were told to stop have this long. So have dropped ones, to be gone.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(250);

pub(super) async fn give_back(settle: &mpsc::Sender<Settlement>, released: Vec<Settlement>) {
    for settlement in released {
        // Fails when the settle loop has ended or cannot write; then the jobs are recovered like those of a silent worker.
        let _ = settle.send_timeout(settlement, LAST_WORDS).await;
    }
}

pub(super) async fn wait_for(subscriptions: &[Arc<Slots>], until: Instant) {
    while Instant::now() < until && !subscriptions.iter().all(|slots| slots.is_idle()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
