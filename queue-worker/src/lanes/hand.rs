//! How many bytes of payloads a worker has in hand: of jobs that wait for a slot, of those that run, and of claims in the air. Small ones are not
//! counted, and those that are not large keep nobody waiting.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use super::left_out::{LARGEST, is_large};
use crate::live::Bell;

/// What a worker has in hand.
pub(crate) struct Hand {
    bell: Arc<Bell>,
    /// From so many bytes on no lane of large payloads is claimed from: what claims bring of lanes whose payloads nobody knows yet still fits.
    full: usize,
    bytes: AtomicUsize,
    /// A claimer has left out a lane, and the scout is to be rung once there is room for this many bytes; zero if none was left out.
    wanted: AtomicUsize,
    told: AtomicBool,
}

/// A payload in hand, until this is dropped.
pub(crate) struct InHand {
    hand: Arc<Hand>,
    bytes: usize,
}

/// So many claims may bring all that one brings, and nobody knows it before.
const UNKNOWN: usize = 3;

const MIB: usize = 1024 * 1024;

impl Hand {
    /// Of so many MiB at most.
    pub(crate) fn new(most: usize, bell: &Arc<Bell>) -> Arc<Self> {
        let full = most.saturating_mul(MIB).saturating_sub(UNKNOWN * LARGEST);
        let (bytes, wanted, told) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { bell: Arc::clone(bell), full, bytes, wanted, told })
    }

    /// Counts a payload in, if it is large.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Option<InHand> {
        is_large(bytes).then(|| self.reserve(bytes))
    }

    /// Counts in what a claim will bring.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> InHand {
        self.bytes.fetch_add(bytes, SeqCst);
        InHand { hand: Arc::clone(self), bytes }
    }

    /// How many more payloads of this size there is room for: one, however large, if there is nothing else. Where there is none the scout is rung
    /// once there is.
    pub(crate) fn fits(&self, bytes: usize) -> usize {
        let held = self.bytes.load(SeqCst);
        let fits = self.full.saturating_sub(held) / bytes.max(1);
        if fits > 0 || held == 0 {
            return fits.max(1);
        }
        let least = |wanted: usize| (wanted == 0 || bytes < wanted).then_some(bytes);
        let _ = self.wanted.fetch_update(SeqCst, SeqCst, least);
        if !self.told.swap(true, SeqCst) {
            tracing::info!(
                bytes = held,
                "the payloads in hand are as many bytes as they may be: large jobs wait for others to end, though slots are free; \
                 `payload_memory` (QUEUE_PAYLOAD_MEMORY) says how many"
            );
        }
        // They may have ended meanwhile, and rung nobody.
        self.ring(self.bytes.load(SeqCst));
        0
    }

    /// Rings the scout if a claimer waits, and a claim is worth while with this many bytes in hand: one of a job or two costs more than it brings.
    fn ring(&self, bytes: usize) {
        let wanted = self.wanted.load(SeqCst);
        let has_room = bytes == 0 || self.full.saturating_sub(bytes) >= wanted.max(self.full / 4);
        if wanted > 0 && has_room && self.wanted.swap(0, SeqCst) > 0 {
            self.bell.ring();
        }
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        let before = self.hand.bytes.fetch_sub(self.bytes, SeqCst);
        self.hand.ring(before.saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Vitals;

    #[test]
    fn there_is_room_for_as_much_as_is_said_and_for_one_that_is_larger() {
        let hand = Hand::new(192, &Arc::new(Bell::of(Vitals::default())));
        assert!(hand.hold(100).is_none(), "small ones are not counted");
        assert_eq!((hand.fits(32 * MIB), hand.fits(1000 * MIB)), (3, 1));
        let held = [hand.hold(32 * MIB), hand.hold(32 * MIB)];
        let wanted = || hand.wanted.load(SeqCst);
        assert_eq!((hand.fits(32 * MIB), hand.fits(40 * MIB), hand.fits(33 * MIB), wanted()), (1, 0, 0, 33 * MIB));
        drop(hand.reserve(MIB));
        assert_eq!(wanted(), 33 * MIB, "there is still no room for it");
        drop(held);
        assert_eq!((wanted(), hand.fits(32 * MIB)), (0, 3), "it was rung");
    }
}
