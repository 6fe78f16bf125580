//! Last attempt that journaled a step; attempts of a durable job are counted from it.

use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering::Relaxed},
};

/// Last attempt that journaled a step, if any. Clones share the value.
#[derive(Clone, Debug)]
pub(super) struct LastJournaled(Arc<AtomicI32>);

/// Value before any step.
const NONE: i32 = i32::MIN;

impl LastJournaled {
    pub(super) fn get(&self) -> Option<i16> {
        // `NONE` is out of range.
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

/// Returns the number of attempts since the last one that journaled a step; it decides about retries.
pub(crate) fn attempts_since(attempt: u32, journaled: Option<i16>) -> u32 {
    // The attempt counter saturates here, and a requeue restarts it.
    const MAX_ATTEMPT: u32 = i16::MAX.unsigned_abs() as u32;
    let last = journaled.map(|last| u32::from(last.unsigned_abs())).filter(|last| *last <= attempt && attempt < MAX_ATTEMPT);
    last.map_or(attempt, |last| attempt - last + 1)
}
