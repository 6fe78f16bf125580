//! Last attempt that journaled a step. The attempts of a durable job are counted from this attempt.

use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering::Relaxed},
};

/// Number of the last attempt that journaled a step, or [`NONE`]. All clones share the value.
#[derive(Clone, Debug)]
pub(super) struct LastJournaled(Arc<AtomicI32>);

/// Value for a job that has not journaled a step.
const NONE: i32 = i32::MIN;

impl LastJournaled {
    pub(super) fn get(&self) -> Option<i16> {
        // `NONE` is outside the range of `i16`, so the conversion fails.
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

/// Returns the number of attempts up to `attempt`, counted from the last attempt that journaled a step. Without such an attempt, returns
/// `attempt`. The verdict compares this number with the maximum number of attempts and derives the backoff from it.
pub(crate) fn attempts_since(attempt: u32, journaled: Option<i16>) -> u32 {
    // Maximum attempt number. The attempt counter saturates at this number, and differences of attempt numbers are then meaningless. A
    // requeue restarts the counter, so `last` may also exceed `attempt`. In both cases, `last` is ignored.
    const MAX_ATTEMPT: u32 = i16::MAX.unsigned_abs() as u32;
    let last = journaled.map(|last| u32::from(last.unsigned_abs())).filter(|last| *last <= attempt && attempt < MAX_ATTEMPT);
    last.map_or(attempt, |last| attempt - last + 1)
}
