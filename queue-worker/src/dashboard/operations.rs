//! Registry of this process's bulk operations in progress. Operators list and stop operations through the registry.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use queue_core::operate::Note;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

/// Maximum number of concurrent bulk operations of a dashboard, over all its stores.
const MAX_RUNNING: usize = 4;

/// Bulk operations in progress in all stores of a dashboard.
#[derive(Clone, Default)]
pub(super) struct BulkOperations(Arc<Mutex<OperationList>>);

#[derive(Default)]
struct OperationList {
    running: Vec<RunningOperation>,
    /// Number of operations started so far, which is also the number of the latest operation.
    started: u64,
}

struct RunningOperation {
    number: u64,
    /// Name of the store whose jobs the operation changes.
    store: Arc<str>,
    note: Note,
    started_at: Instant,
    stop: CancellationToken,
}

/// Bulk operation in progress, as listed for operators.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct BulkOperationStatus {
    /// Number of the operation, unique within this process.
    pub(super) number: u64,
    /// Name of the operator who started the operation.
    pub(super) actor: String,
    /// Kind of the operation, as recorded in the audit log.
    pub(super) act: String,
    /// Description of the selected jobs, as recorded in the audit log.
    pub(super) what: String,
    /// Seconds since the operation started.
    pub(super) seconds: f64,
}

/// Slot of a bulk operation in progress. Dropping the slot removes the operation from the registry.
pub(super) struct OperationSlot {
    operations: BulkOperations,
    number: u64,
    /// Cancellation token that stops the operation.
    pub(super) stop: CancellationToken,
}

impl BulkOperations {
    /// Registers an operation and returns its slot. Returns `None` if [`MAX_RUNNING`] operations are already in progress.
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

    /// Returns the operations in progress in `store`, oldest first.
    pub(super) fn list(&self, store: &Arc<str>) -> Vec<BulkOperationStatus> {
        self.lock().running.iter().filter(|operation| operation.store == *store).map(RunningOperation::status).collect()
    }

    /// Stops an operation after its current batch and returns its status. Returns `None` if `store` has no operation with this number.
    pub(super) fn stop(&self, store: &Arc<str>, number: u64) -> Option<BulkOperationStatus> {
        let list = self.lock();
        let operation = list.running.iter().find(|operation| operation.number == number && operation.store == *store)?;
        operation.stop.cancel();
        Some(operation.status())
    }

    /// Locks the list. A poisoned lock is safe to use, because no code can panic while the list is inconsistent.
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
