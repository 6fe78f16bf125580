//! Shutdown of a worker: releases jobs and waits for handlers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use crate::{run::Slots, settle::Settlement};

/// Timeout for handlers to finish after a stop request, for dropped handlers to end, and for sending a verdict.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_millis(250);

pub(super) async fn give_back(settle: &mpsc::Sender<Settlement>, released: Vec<Settlement>) {
    for settlement in released {
        // Sending fails if the settle loop has ended or cannot write. The jobs are then recovered after the lease has expired.
        let _ = settle.send_timeout(settlement, STOP_TIMEOUT).await;
    }
}

pub(super) async fn wait_until_idle(subscriptions: &[Arc<Slots>], until: Instant) {
    while Instant::now() < until && !subscriptions.iter().all(|slots| slots.is_idle()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
