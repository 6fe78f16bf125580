//! Bulk operations in progress in this process, so that they can be listed and stopped.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use queue_core::operate::Note;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

/// Maximum number of concurrent bulk operations.
const MAX_RUNNING: usize = 4;

/// Bulk operations in progress in all stores of a dashboard.
#[derive(Clone, Default)]
pub(super) struct BulkOperations(Arc<Mutex<OperationList>>);

#[derive(Default)]
struct OperationList {
    running: Vec<RunningOperation>,
    /// Number of operations started so far, which is also the latest operation number.
    started: u64,
}

struct RunningOperation {
    number: u64,
    /// Name of the store.
    store: Arc<str>,
    note: Note,
    started_at: Instant,
    stop: CancellationToken,
}

/// A bulk operation in progress.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct BulkOperationStatus {
    /// Number of the operation, unique within this process.
    pub(super) number: u64,
    /// Who started it.
    pub(super) actor: String,
    /// What it does.
    pub(super) act: String,
    /// Which jobs it covers.
    pub(super) what: String,
    /// Seconds since it started.
    pub(super) seconds: f64,
}

/// A slot for a bulk operation. Dropping it releases the slot.
pub(super) struct OperationSlot {
    operations: BulkOperations,
    number: u64,
    /// Cancelled when the operation is asked to stop.
    pub(super) stop: CancellationToken,
}

impl BulkOperations {
    /// Registers an operation. Returns `None` if the maximum number is already running.
    pub(super) fn begin(&self, store: &Arc<str>, note: Note) -> Option<OperationSlot> {
        let mut list = self.lock();
        if list.running.len() >= MAX_RUNNING {
            return None;
        }
        list.started += 1;
        let (number, stop) = (list.started, CancellationToken::new());
        list.running.push(RunningOperation { number, store: store.clone(), note, started_at: Instant::now(), stop: stop.clone() });
        Some(OperationSlot { operations: self.clone(), number, stop })
    }

    /// Returns the operations in progress in this store, oldest first.
    pub(super) fn list(&self, store: &Arc<str>) -> Vec<BulkOperationStatus> {
        self.lock().running.iter().filter(|operation| operation.store == *store).map(RunningOperation::status).collect()
    }

    /// Stops an operation after its current batch. Returns `None` if this store has no operation of this number.
    pub(super) fn stop(&self, store: &Arc<str>, number: u64) -> Option<BulkOperationStatus> {
        let list = self.lock();
        let operation = list.running.iter().find(|operation| operation.number == number && operation.store == *store)?;
        operation.stop.cancel();
        Some(operation.status())
    }

    /// Nothing can panic while the list is inconsistent, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, OperationList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningOperation {
    fn status(&self) -> BulkOperationStatus {
        let Note { actor, act, what, .. } = self.note.clone();
        BulkOperationStatus { number: self.number, actor, act, what, seconds: self.started_at.elapsed().as_secs_f64() }
    }
}

impl Drop for OperationSlot {
    fn drop(&mut self) {
        self.operations.lock().running.retain(|operation| operation.number != self.number);
    }
}
