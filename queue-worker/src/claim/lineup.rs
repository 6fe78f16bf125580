//! When to look for what is to be brought into lines. Decides nothing.

use std::time::Instant;

use crate::lanes::Rescan;

/// When to look for what is to be brought into lines.
#[derive(Default)]
pub(super) struct Lineup {
    /// While claims are full.
    pub(super) not_before: Option<Instant>,
    /// Below the floors.
    pub(super) rescan: Rescan,
}
