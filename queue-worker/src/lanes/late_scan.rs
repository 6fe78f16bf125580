//! Schedule of scans below the floors: complete while that is fast, otherwise some blocks of the table at a time.

use std::time::{Duration, Instant};

/// When to scan below the floors: after a claim that returned fewer jobs than requested, and every second, but for at most a twentieth of the time.
/// Dead index entries make scans slower while any session holds a snapshot.
#[derive(Default)]
pub(crate) struct LateScan {
    /// Earliest start, which bounds scans to a twentieth of the time.
    not_before: Option<Instant>,
    /// Latest start, so that busy workers find late commits too.
    overdue_at: Option<Instant>,
    /// Whether a claim has returned fewer jobs than requested since the last scan began.
    pub(crate) is_requested: bool,
    /// Whether the last complete scan was slow because of dead index entries. Later scans go by blocks.
    is_slow: bool,
    /// Whether that was detected by the last scan.
    became_slow: bool,
    /// Progress of a block scan; `None` if the next scan is complete.
    cursor: Option<BlockCursor>,
    /// Earliest time of the next complete scan, if these are slow.
    full_scan_at: Option<Instant>,
}

/// Progress of a block scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockCursor {
    /// Next block. Zero: no scan is in progress.
    next: i64,
    /// Size of the table in blocks at the last part.
    seen: i64,
}

/// Size of the `ready` table.
#[derive(Clone, Copy, Debug, sqlx::FromRow)]
pub(super) struct TableExtent {
    pub(super) blocks: i64,
    live: i64,
    dead: i64,
    /// A place older than any of the last seconds; `None` if the worker's identity has expired.
    pub(super) place: Option<i64>,
}

/// A finished part of a block scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockScan {
    next: BlockCursor,
    /// Skipped because the index is faster.
    use_index: bool,
}

/// Slower scans do not delay claims.
const SLOW_SCAN: Duration = Duration::from_millis(2);

/// Blocks per part: about a millisecond, some 30,000 entries.
const BLOCKS_PER_SCAN: i64 = 256;

/// While a snapshot is held, no space is reused and new rows are in the last blocks. Every part includes these.
const TAIL_BLOCKS: i64 = 32;

/// Fewer dead entries are read by the index in a millisecond.
const FEW_DEAD_ENTRIES: i64 = 5_000;

impl BlockCursor {
    /// Returns the block ranges to scan now, and the next cursor.
    pub(super) fn parts(self, blocks: i64) -> (Vec<(i64, i64)>, Self) {
        let first = if self.next < blocks { self.next } else { 0 };
        let beyond = (first + BLOCKS_PER_SCAN).min(blocks);
        let last = (self.seen - TAIL_BLOCKS).max(blocks - BLOCKS_PER_SCAN).max(beyond);
        let parts = [(first, beyond), (last, blocks)].into_iter().filter(|(first, beyond)| first < beyond).collect();
        (parts, Self { next: if beyond < blocks { beyond } else { 0 }, seen: blocks })
    }
}

impl TableExtent {
    /// Whether the index is faster: it skips live entries, a block scan does not.
    pub(super) fn use_index(self) -> bool {
        self.blocks == 0 || self.dead <= FEW_DEAD_ENTRIES || self.dead < self.live
    }
}

impl BlockScan {
    /// A part after which the scan continues at the cursor.
    pub(super) fn up_to(next: BlockCursor) -> Self {
        Self { next, use_index: false }
    }

    /// A part that was skipped.
    pub(super) fn skipped() -> Self {
        Self { next: BlockCursor::default(), use_index: true }
    }
}

impl LateScan {
    /// Returns when to scan before falling asleep: the job of the last wake-up may be below a floor.
    pub(crate) fn pending_at(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.is_pending())
    }

    /// Whether a scan is pending or incomplete.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_requested || self.is_partial()
    }

    fn is_partial(&self) -> bool {
        self.cursor.is_some_and(|sweep| sweep.next > 0)
    }

    /// Whether a scan is overdue.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue_at.is_none_or(|at| Instant::now() >= at)
    }

    /// Whether complete scans are slow, so that nothing should wait for them.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Returns the cursor if the next scan goes by blocks.
    pub(crate) fn block_cursor(&self) -> Option<BlockCursor> {
        self.cursor
    }

    /// Starts or continues a scan. Claims that return fewer jobs than requested from now on make another one pending.
    pub(crate) fn begin(&mut self) {
        if !self.is_partial() {
            self.is_requested = false;
        }
        // No other scan starts while this one is in flight; its end is a wake-up.
        let later = Instant::now() + Duration::from_secs(1);
        (self.not_before, self.overdue_at) = (Some(later), Some(later));
    }

    /// Cancels a pending scan: no lane can hold jobs.
    pub(crate) fn clear(&mut self) {
        (self.is_requested, self.is_slow, self.cursor) = (false, false, None);
    }

    /// Whether the time budget allows a scan.
    pub(crate) fn is_allowed(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    /// Whether the time budget allows a slow complete scan.
    pub(crate) fn allows_full_scan(&self, now: Instant) -> bool {
        self.full_scan_at.is_none_or(|at| now >= at)
    }

    /// Records the duration of a complete scan and the number of jobs found.
    pub(crate) fn record_full(&mut self, took: Duration, found: usize) {
        let was_slow = self.is_slow;
        self.is_slow = took > SLOW_SCAN + Duration::from_micros(50) * u32::try_from(found).unwrap_or(u32::MAX);
        (self.became_slow, self.cursor) = (self.is_slow && !was_slow, self.is_slow.then(BlockCursor::default));
        self.full_scan_at = Some(Instant::now() + 400 * took);
        self.schedule(20 * took, Duration::from_secs(1));
    }

    /// Starts the first block scan immediately, instead of after the pause of a complete one.
    pub(crate) fn start_blocks_soon(&mut self) {
        if std::mem::take(&mut self.became_slow) {
            self.not_before = Some(Instant::now());
        }
    }

    /// Records a part of a block scan. If it returned as many jobs as requested, another scan is pending.
    pub(crate) fn record_blocks(&mut self, took: Duration, part: BlockScan, is_full: bool) {
        self.is_requested |= is_full || part.use_index;
        self.cursor = (!part.use_index).then_some(part.next);
        match self.cursor {
            None => self.schedule(Duration::ZERO, Duration::ZERO),
            Some(_) if self.is_partial() => self.schedule(20 * took, Duration::ZERO),
            // A block scan has many parts.
            Some(_) => self.schedule(20 * took, Duration::from_secs(3)),
        }
    }

    /// Sets the earliest and the latest start of the next scan.
    fn schedule(&mut self, rest: Duration, longest: Duration) {
        let now = Instant::now();
        (self.not_before, self.overdue_at) = (Some(now + rest), Some(now + rest.max(longest)));
    }
}

#[cfg(test)]
mod tests;
