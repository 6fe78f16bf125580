//! Tracks the mean payload size of each lane's last claim, so that claims fit into the payload memory.

use std::collections::HashMap;

use super::{
    omitted::{is_recorded_size, max_jobs, waits_for_memory},
    payload_memory::PayloadMemory,
};

/// Mean payload sizes in bytes by lane. Lanes with small payloads are omitted.
#[derive(Default)]
pub(crate) struct PayloadSizes(HashMap<i64, usize>);

impl PayloadSizes {
    pub(super) fn record(&mut self, sizes: impl Iterator<Item = (i64, usize)>) {
        for (lane, bytes) in sizes {
            if is_recorded_size(bytes) {
                self.0.insert(lane, bytes);
            } else if !self.0.is_empty() {
                self.0.remove(&lane);
            }
        }
    }

    pub(super) fn keep(&mut self, is_known: impl Fn(i64) -> bool) {
        self.0.retain(|lane, _| is_known(*lane));
    }

    /// Reduces the requested number of jobs per lane to the number that fits into a claim and into the available memory. Once a lane does
    /// not fit into the memory, later lanes with large payloads get no jobs. Otherwise, their jobs could keep the memory full, and the
    /// lane that does not fit would never be served.
    pub(crate) fn fit(&self, requested: impl Iterator<Item = (i64, usize)>, memory: &PayloadMemory) -> Vec<usize> {
        let mut is_full = false;
        let fit = |(lane, most): (i64, usize)| {
            let Some(bytes) = self.0.get(&lane) else { return most };
            if !waits_for_memory(*bytes) {
                return most.min(max_jobs(*bytes));
            }
            let room = if is_full { 0 } else { memory.fits(*bytes) };
            is_full |= room == 0;
            most.min(max_jobs(*bytes)).min(room)
        };
        requested.map(fit).collect()
    }

    /// Returns the expected total payload size in bytes of `jobs` jobs of a lane.
    pub(crate) fn weight(&self, lane: i64, jobs: usize) -> usize {
        self.0.get(&lane).map_or(0, |bytes| bytes.saturating_mul(jobs))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::live::{LoopHealth, Notifier};

    #[test]
    fn without_room_large_payloads_wait_in_order_and_small_ones_do_not() {
        const MIB: usize = 1024 * 1024;
        let (mut sizes, memory) = (PayloadSizes::default(), PayloadMemory::new(192, &Arc::new(Notifier::of(LoopHealth::default()))));
        sizes.record([(1, 20 * MIB), (2, 2048), (3, MIB), (4, 10)].into_iter());
        let requested = || (1..=4).map(|lane| (lane, 5));
        assert_eq!(sizes.fit(requested(), &memory), [1, 5, 5, 5], "a claim returns one of the largest");
        let held = memory.hold(80 * MIB);
        assert_eq!(sizes.fit(requested(), &memory), [0, 5, 0, 5], "others leave the room to the first");
        assert_eq!(sizes.fit([(3, 50)].into_iter(), &memory), [16]);
        assert_eq!((sizes.weight(3, 4), sizes.weight(4, 4)), (4 * MIB, 0));
        drop(held);
    }
}
