//! How dense the stream of jobs is. Pure.

use super::flight::ClaimResult;

/// Whether jobs come so fast that looking for them costs less than being told: a notification in every transaction makes commits queue up
/// behind each other.
#[derive(Default)]
pub(super) struct Traffic {
    hits: u32,
    misses: u32,
}

impl Traffic {
    /// So many looks in a row make up one's mind. Fewer, and the idle row would be written and deleted for every small burst.
    const ENOUGH: u32 = 3;

    pub(super) fn note(&mut self, found: ClaimResult) {
        match found {
            ClaimResult::Saturated => {}
            ClaimResult::Jobs(0) if self.misses + 1 >= Self::ENOUGH => *self = Self::default(),
            ClaimResult::Jobs(0) => self.misses += 1,
            ClaimResult::Jobs(_) | ClaimResult::Full => *self = Self { hits: self.hits.saturating_add(1), misses: 0 },
        }
    }

    pub(super) fn is_dense(&self) -> bool {
        self.hits >= Self::ENOUGH
    }
}
