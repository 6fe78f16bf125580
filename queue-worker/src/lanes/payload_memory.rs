//! Payload memory of a worker: memory for the payloads of running jobs, of claimed jobs that wait for a slot, and of claims in flight.
//! Small payloads are not counted, and medium payloads never wait for memory.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use super::omitted::{MAX_BYTES, is_recorded_size};
use crate::live::Notifier;

/// Memory budget for the payloads of a worker's jobs.
pub(crate) struct PayloadMemory {
    notifier: Arc<Notifier>,
    /// Number of bytes in use above which lanes with large payloads are not claimed. The rest of the budget is for claims of lanes with
    /// unknown payload sizes.
    full: usize,
    bytes: AtomicUsize,
    /// Lowest number of free bytes that a skipped lane needs. The poller is woken once enough bytes are free. Zero if no lane was skipped.
    required_bytes: AtomicUsize,
    has_logged: AtomicBool,
}

/// Part of the payload memory that is in use until the reservation is dropped.
pub(crate) struct PayloadReservation {
    memory: Arc<PayloadMemory>,
    bytes: usize,
}

/// Number of maximum-size claims for which the budget reserves memory. Claims of lanes with unknown payload sizes may reach this size.
const UNKNOWN_CLAIMS: usize = 3;

const MIB: usize = 1024 * 1024;

impl PayloadMemory {
    /// Creates a memory budget of `most` MiB.
    pub(crate) fn new(most: usize, notifier: &Arc<Notifier>) -> Arc<Self> {
        let full = most.saturating_mul(MIB).saturating_sub(UNKNOWN_CLAIMS * MAX_BYTES);
        let (bytes, required_bytes, has_logged) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { notifier: Arc::clone(notifier), full, bytes, required_bytes, has_logged })
    }

    /// Counts a payload of `bytes` bytes against the budget, unless the payload is small.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Option<PayloadReservation> {
        is_recorded_size(bytes).then(|| self.reserve(bytes))
    }

    /// Counts the expected size of a claim against the budget.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> PayloadReservation {
        self.bytes.fetch_add(bytes, SeqCst);
        PayloadReservation { memory: Arc::clone(self), bytes }
    }

    /// Returns the number of payloads of `bytes` bytes that fit into the budget. If no other payload is counted, at least one payload fits.
    /// If none fits, the poller is woken once enough memory is free.
    pub(crate) fn fits(&self, bytes: usize) -> usize {
        let held = self.bytes.load(SeqCst);
        let fits = self.full.saturating_sub(held) / bytes.max(1);
        if fits > 0 || held == 0 {
            return fits.max(1);
        }
        let least = |required_bytes: usize| (required_bytes == 0 || bytes < required_bytes).then_some(bytes);
        let _ = self.required_bytes.fetch_update(SeqCst, SeqCst, least);
        if !self.has_logged.swap(true, SeqCst) {
            tracing::info!(
                bytes = held,
                "the payload memory is full, so large jobs wait for others to finish although slots are free; \
                 `payload_memory` (QUEUE_PAYLOAD_MEMORY) sets its size"
            );
        }
        // Payloads may have been released before `required_bytes` was set. Their release did not wake the poller, so the free memory is
        // checked again.
        self.ring(self.bytes.load(SeqCst));
        0
    }

    /// Wakes the poller if a lane was skipped and enough memory is free for this lane. `bytes` is the number of bytes in use. At least a
    /// quarter of `full` must be free, because a wake-up for one or two jobs is not worth its cost.
    fn ring(&self, bytes: usize) {
        let required_bytes = self.required_bytes.load(SeqCst);
        let has_room = bytes == 0 || self.full.saturating_sub(bytes) >= required_bytes.max(self.full / 4);
        if required_bytes > 0 && has_room && self.required_bytes.swap(0, SeqCst) > 0 {
            self.notifier.request_probe();
        }
    }
}

impl Drop for PayloadReservation {
    fn drop(&mut self) {
        let before = self.memory.bytes.fetch_sub(self.bytes, SeqCst);
        self.memory.ring(before.saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::LoopHealth;

    #[test]
    fn payloads_fit_up_to_the_budget_and_a_larger_one_fits_alone() {
        let memory = PayloadMemory::new(192, &Arc::new(Notifier::of(LoopHealth::default())));
        assert!(memory.hold(100).is_none(), "small ones are not counted");
        assert_eq!((memory.fits(32 * MIB), memory.fits(1000 * MIB)), (3, 1));
        let held = [memory.hold(32 * MIB), memory.hold(32 * MIB)];
        let required_bytes = || memory.required_bytes.load(SeqCst);
        assert_eq!((memory.fits(32 * MIB), memory.fits(40 * MIB), memory.fits(33 * MIB), required_bytes()), (1, 0, 0, 33 * MIB));
        drop(memory.reserve(MIB));
        assert_eq!(required_bytes(), 33 * MIB, "there is still no room for it");
        drop(held);
        assert_eq!((required_bytes(), memory.fits(32 * MIB)), (0, 3), "the poller was woken");
    }
}
