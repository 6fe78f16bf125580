//! Schedule of late scans. A late scan finds ready jobs that were already below their lane's floor when they were committed. As long as
//! complete scans are fast, each late scan is complete. Otherwise, each late scan reads only the next part of the table `ready`.

use std::time::{Duration, Instant};

/// Schedule of late scans. A scan is due after a claim that returned fewer jobs than requested, and every second. Scans are limited to
/// about 5 % of the time, because dead index entries slow down scans while any session holds a snapshot.
#[derive(Default)]
pub(crate) struct LateScan {
    /// Earliest start of the next scan. Limits scans to about 5 % of the time.
    not_before: Option<Instant>,
    /// Time after which the next scan is overdue. An overdue scan needs no request, so busy workers also find jobs below the floors.
    overdue_at: Option<Instant>,
    /// Whether a scan was requested since the last scan began, usually by a claim that returned fewer jobs than requested.
    pub(crate) is_requested: bool,
    /// Whether the last complete scan was slow because of dead index entries. If so, each of the following scans reads only one part of
    /// the table.
    is_slow: bool,
    /// Whether the last complete scan was slow and the complete scan before it was fast.
    became_slow: bool,
    /// Progress of a block scan. `None` if the next scan is a complete scan.
    cursor: Option<BlockCursor>,
    /// Earliest start of the next complete scan while complete scans are slow.
    full_scan_at: Option<Instant>,
}

/// Progress of a block scan through the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockCursor {
    /// Next block to scan. Zero if no block scan is in progress.
    next: i64,
    /// Size of the table in blocks when the last part was scanned.
    seen: i64,
}

/// Size of the `ready` table in blocks and rows.
#[derive(Clone, Copy, Debug, sqlx::FromRow)]
pub(super) struct TableExtent {
    pub(super) blocks: i64,
    live: i64,
    dead: i64,
    /// Lower bound of the queue positions assigned in the last ten seconds. `None` if the worker's heartbeat has expired.
    pub(super) place: Option<i64>,
}

/// Outcome of one part of a block scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockScan {
    next: BlockCursor,
    /// Whether the scan skipped this part of the table, because an index scan is faster.
    use_index: bool,
}

/// Duration above which a complete scan counts as slow. Claims do not wait for slow scans.
const SLOW_SCAN: Duration = Duration::from_millis(2);

/// Number of blocks per part of a block scan. A part has about 30,000 entries and takes about a millisecond.
const BLOCKS_PER_SCAN: i64 = 256;

/// Number of blocks before the table's previous end that each part reads again. Each part also reads the blocks added since the previous
/// part. In total, a part reads at most [`BLOCKS_PER_SCAN`] blocks at the table's end. New rows are added there while a session holds a
/// snapshot, because no space is reused until the snapshot is released.
const TAIL_BLOCKS: i64 = 32;

/// Number of dead entries that an index scan can read within a millisecond.
const FEW_DEAD_ENTRIES: i64 = 5_000;

impl BlockCursor {
    /// Returns the block ranges of the next part, and the cursor after that part.
    pub(super) fn parts(self, blocks: i64) -> (Vec<(i64, i64)>, Self) {
        let first = if self.next < blocks { self.next } else { 0 };
        let beyond = (first + BLOCKS_PER_SCAN).min(blocks);
        let last = (self.seen - TAIL_BLOCKS).max(blocks - BLOCKS_PER_SCAN).max(beyond);
        let parts = [(first, beyond), (last, blocks)].into_iter().filter(|(first, beyond)| first < beyond).collect();
        (parts, Self { next: if beyond < blocks { beyond } else { 0 }, seen: blocks })
    }
}

impl TableExtent {
    /// Returns whether an index scan is faster than a block scan. An index scan reads only the dead entries below the floors, and a block
    /// scan also reads live rows.
    pub(super) fn use_index(self) -> bool {
        self.blocks == 0 || self.dead <= FEW_DEAD_ENTRIES || self.dead < self.live
    }
}

impl BlockScan {
    /// Creates the outcome of a part after which the scan continues at `next`.
    pub(super) fn up_to(next: BlockCursor) -> Self {
        Self { next, use_index: false }
    }

    /// Creates the outcome of a skipped part.
    pub(super) fn skipped() -> Self {
        Self { next: BlockCursor::default(), use_index: true }
    }
}

impl LateScan {
    /// Returns the earliest start of a pending scan, if any. The scan must run before the worker goes idle, because the job that caused
    /// the last wake-up may be below a floor.
    pub(crate) fn pending_at(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.is_pending())
    }

    /// Returns whether a scan is requested or incomplete.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_requested || self.is_partial()
    }

    fn is_partial(&self) -> bool {
        self.cursor.is_some_and(|sweep| sweep.next > 0)
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue_at.is_none_or(|at| Instant::now() >= at)
    }

    /// Returns whether complete scans are slow. Claims must not wait for a slow scan.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Returns the cursor of the next block scan, or `None` if the next scan is a complete scan.
    pub(crate) fn block_cursor(&self) -> Option<BlockCursor> {
        self.cursor
    }

    /// Starts or continues a scan. A later claim that returns fewer jobs than requested makes another scan pending.
    pub(crate) fn begin(&mut self) {
        if !self.is_partial() {
            self.is_requested = false;
        }
        // Delays the next scan by a second while this scan is in flight. The end of this scan sets the actual start of the next scan.
        let later = Instant::now() + Duration::from_secs(1);
        (self.not_before, self.overdue_at) = (Some(later), Some(later));
    }

    /// Cancels a pending scan. The caller must ensure that no lane can hold jobs.
    pub(crate) fn clear(&mut self) {
        (self.is_requested, self.is_slow, self.cursor) = (false, false, None);
    }

    /// Returns whether the time budget of scans, about 5 % of the time, allows a scan at `now`.
    pub(crate) fn is_allowed(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    /// Returns whether a slow complete scan is allowed at `now`. The time budget of slow complete scans is about 0.25 % of the time.
    pub(crate) fn allows_full_scan(&self, now: Instant) -> bool {
        self.full_scan_at.is_none_or(|at| now >= at)
    }

    /// Records the duration of a complete scan and the number of jobs that it found.
    pub(crate) fn record_full(&mut self, took: Duration, found: usize) {
        let was_slow = self.is_slow;
        self.is_slow = took > SLOW_SCAN + Duration::from_micros(50) * u32::try_from(found).unwrap_or(u32::MAX);
        (self.became_slow, self.cursor) = (self.is_slow && !was_slow, self.is_slow.then(BlockCursor::default));
        self.full_scan_at = Some(Instant::now() + 400 * took);
        self.schedule(20 * took, Duration::from_secs(1));
    }

    /// Makes the first block scan due immediately if complete scans have just become slow. Without this call, the pause after the
    /// complete scan would delay the block scan.
    pub(crate) fn start_blocks_soon(&mut self) {
        if std::mem::take(&mut self.became_slow) {
            self.not_before = Some(Instant::now());
        }
    }

    /// Records the result of one part of a block scan. Another scan becomes pending if the part returned as many jobs as requested, or if
    /// it was skipped because an index scan is faster.
    pub(crate) fn record_blocks(&mut self, took: Duration, part: BlockScan, is_full: bool) {
        self.is_requested |= is_full || part.use_index;
        self.cursor = (!part.use_index).then_some(part.next);
        match self.cursor {
            None => self.schedule(Duration::ZERO, Duration::ZERO),
            Some(_) if self.is_partial() => self.schedule(20 * took, Duration::ZERO),
            // After the last part, the next block scan becomes overdue only after three seconds, because a block scan has many parts.
            Some(_) => self.schedule(20 * took, Duration::from_secs(3)),
        }
    }

    /// Sets the earliest start of the next scan, and the time at which the scan becomes overdue.
    fn schedule(&mut self, rest: Duration, longest: Duration) {
        let now = Instant::now();
        (self.not_before, self.overdue_at) = (Some(now + rest), Some(now + rest.max(longest)));
    }
}

#[cfg(test)]
mod tests;
