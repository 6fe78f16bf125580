//! When to look for what is to be brought into lines. Decides nothing.

use std::time::Instant;

use crate::lanes::Rescan;

/// When to look for what is to be brought into lines.
#[derive(Default)]
pub(super) struct Lineup {
    /// While claims are full.
    pub(super) not_before: Option<Instant>,
    /// The last look left some: whatever waits for room waits behind them.
    pub(super) more: bool,
    /// Below the floors.
    pub(super) rescan: Rescan,
}
