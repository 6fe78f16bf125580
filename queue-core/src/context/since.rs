//! From which attempt on a durable job's attempts count again: the last that journaled.

use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering::Relaxed},
};

/// The attempt that journaled last, if any did; known to all who hold it.
#[derive(Clone, Debug)]
pub(super) struct LastJournaled(Arc<AtomicI32>);

/// Before any attempt.
const NONE: i32 = i32::MIN;

impl LastJournaled {
    pub(super) fn get(&self) -> Option<i16> {
        // None is out of range.
        i16::try_from(self.0.load(Relaxed)).ok()
    }

    pub(super) fn set(&self, attempt: i16) {
        self.0.store(attempt.into(), Relaxed);
    }
}

impl Default for LastJournaled {
    fn default() -> Self {
        Self(Arc::new(AtomicI32::new(NONE)))
    }
}

/// The number of an attempt, as far as it decides over another: from the last on that journaled.
pub(crate) fn attempts_since(attempt: u32, journaled: Option<i16>) -> u32 {
    // Attempts are counted no further, and once more from the first after a requeue.
    const MOST: u32 = i16::MAX.unsigned_abs() as u32;
    let last = journaled.map(|last| u32::from(last.unsigned_abs())).filter(|last| *last <= attempt && attempt < MOST);
    last.map_or(attempt, |last| attempt - last + 1)
}
