//! State of the steps of a poll iteration: moves into fair queues, pauses, and the crash quarantine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::JobId;

use crate::{lanes::LateScan, run::Slots};

/// When to move jobs into fair queues next.
#[derive(Default)]
pub(super) struct FairQueueTimer {
    /// Earliest time of the next move while busy.
    pub(super) not_before: Option<Instant>,
    /// Whether the last move left jobs behind.
    pub(super) more: bool,
    /// Schedule of moves from below the floors.
    pub(super) late_scan: LateScan,
}

/// State of a worker's pause handling.
pub(super) struct PauseWatcher {
    /// When to load pauses again without a notification.
    pub(super) refresh_at: Instant,
    /// Number of the newest pause that is loaded but not acknowledged yet.
    pub(super) unacknowledged: Option<i64>,
}

/// Delay before checking again whether every claimer applies the pauses.
const ACK_RETRY: Duration = Duration::from_millis(20);

impl PauseWatcher {
    pub(super) fn new() -> Self {
        Self { refresh_at: Instant::now(), unacknowledged: None }
    }

    /// Returns when the poll loop must run again at the latest.
    pub(super) fn until(&self, until: Instant) -> Instant {
        self.unacknowledged.map_or(until, |_| until.min(Instant::now() + ACK_RETRY))
    }
}

/// Interval between checks whether the process is idle.
pub(super) const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// State of a worker's crash quarantine.
pub(super) struct CrashQuarantine {
    /// Since when normal claims are paused.
    pub(super) quiet: Option<Instant>,
    /// Since when quarantined jobs have been waiting.
    pub(super) waiting: Option<Instant>,
    /// Earliest time of the next query.
    pub(super) next: Instant,
    /// Quarantined jobs claimed last.
    pub(super) running: Vec<(Arc<Slots>, JobId)>,
    /// Rotates lanes of equal priority.
    pub(super) turn: usize,
}

impl CrashQuarantine {
    pub(super) fn new() -> Self {
        Self { quiet: None, waiting: None, next: Instant::now(), running: Vec::new(), turn: 0 }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.is_some()
    }

    /// When to query again, if jobs may be waiting.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.map(|_| self.next)
    }

    pub(super) fn any_running(&self) -> bool {
        self.running.iter().any(|(slots, id)| slots.holds(*id))
    }

    /// Resumes normal claims for at least as long as they were paused, so that one crash with many slow jobs does not stop everything else.
    pub(super) fn yield_to_others(&mut self, least: Duration) {
        let quiet = self.quiet.take().map_or(least, |since| since.elapsed());
        self.next = Instant::now() + quiet.max(least);
    }
}
