//! State that poll iterations keep between runs: moves into fair queues, pauses, and the crash quarantine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::JobId;

use crate::{lanes::LateScan, run::Slots};

/// Schedule of moves into fair queues.
#[derive(Default)]
pub(super) struct FairQueueTimer {
    /// Earliest time of the next move while claims return jobs.
    pub(super) not_before: Option<Instant>,
    /// Whether the last move left ready jobs behind.
    pub(super) more: bool,
    /// Schedule of moves from below the floors.
    pub(super) late_scan: LateScan,
}

/// Schedule of loading and acknowledging pauses.
pub(super) struct PauseWatcher {
    /// Time of the next load without a notification.
    pub(super) refresh_at: Instant,
    /// Number of the newest pause that has been loaded but not acknowledged.
    pub(super) unacknowledged: Option<i64>,
}

/// Delay before checking again whether every claimer applies the pauses.
const ACK_RETRY: Duration = Duration::from_millis(20);

impl PauseWatcher {
    pub(super) fn new() -> Self {
        Self { refresh_at: Instant::now(), unacknowledged: None }
    }

    /// Returns the latest time of the next poll iteration: `until`, or earlier if a pause is unacknowledged.
    pub(super) fn until(&self, until: Instant) -> Instant {
        self.unacknowledged.map_or(until, |_| until.min(Instant::now() + ACK_RETRY))
    }
}

/// Interval between checks for running jobs before quarantined jobs start.
pub(super) const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Schedule and jobs of a worker's crash quarantine.
pub(super) struct CrashQuarantine {
    /// Start of the current pause of normal claims.
    pub(super) quiet: Option<Instant>,
    /// Time since which quarantined jobs have been waiting.
    pub(super) waiting: Option<Instant>,
    /// Earliest time of the next query for quarantined jobs.
    pub(super) next: Instant,
    /// Most recently claimed quarantined jobs, with the slots that run them.
    pub(super) running: Vec<(Arc<Slots>, JobId)>,
    /// Offset that rotates lanes of equal priority.
    pub(super) turn: usize,
}

impl CrashQuarantine {
    pub(super) fn new() -> Self {
        Self { quiet: None, waiting: None, next: Instant::now(), running: Vec::new(), turn: 0 }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.is_some()
    }

    /// Returns when to query again, if quarantined jobs are waiting.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.map(|_| self.next)
    }

    pub(super) fn any_running(&self) -> bool {
        self.running.iter().any(|(slots, id)| slots.holds(*id))
    }

    /// Resumes normal claims for at least the duration of the pause, and at least for `least`. Otherwise one crash with many slow jobs
    /// would block all other jobs.
    pub(super) fn yield_to_others(&mut self, least: Duration) {
        let quiet = self.quiet.take().map_or(least, |since| since.elapsed());
        self.next = Instant::now() + quiet.max(least);
    }
}
