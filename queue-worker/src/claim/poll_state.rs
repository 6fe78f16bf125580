//! State of the poller that persists across poll iterations: the schedules of fair queues and pauses, and the crash quarantine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::JobId;

use crate::{lanes::LateScan, run::Slots};

/// Schedule for moving jobs into fair queues.
#[derive(Default)]
pub(super) struct FairQueueTimer {
    /// Earliest time of the next move while claims return jobs. `None` if the next move may run immediately.
    pub(super) not_before: Option<Instant>,
    /// Whether the last move left ready jobs outside the fair queues.
    pub(super) more: bool,
    /// Schedule of the scans for late jobs, which are below the floors of their lanes.
    pub(super) late_scan: LateScan,
}

/// Schedule for loading and acknowledging pauses.
pub(super) struct PauseWatcher {
    /// Time at which the pauses are loaded if no notification arrives earlier.
    pub(super) refresh_at: Instant,
    /// Number of the newest pause or limit that has been loaded but not acknowledged. `None` if all loaded numbers are acknowledged.
    pub(super) unacknowledged: Option<i64>,
}

/// Delay before checking again whether every claimer applies the pauses.
const ACK_RETRY: Duration = Duration::from_millis(20);

impl PauseWatcher {
    pub(super) fn new() -> Self {
        Self { refresh_at: Instant::now(), unacknowledged: None }
    }

    /// Returns the latest time of the next poll iteration: `until`, or earlier while a pause is unacknowledged.
    pub(super) fn until(&self, until: Instant) -> Instant {
        self.unacknowledged.map_or(until, |_| until.min(Instant::now() + ACK_RETRY))
    }
}

/// Interval at which the worker checks whether jobs are still running, before it starts quarantined jobs.
pub(super) const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Schedule and running jobs of a worker's crash quarantine.
pub(super) struct CrashQuarantine {
    /// Start of the current pause of normal claims. `None` if normal claims are not paused.
    pub(super) quiet: Option<Instant>,
    /// Time from which the wait of quarantined jobs is measured. `None` if no quarantined jobs are waiting.
    pub(super) waiting: Option<Instant>,
    /// Earliest time of the next query for quarantined jobs.
    pub(super) next: Instant,
    /// Most recently claimed quarantined jobs, with the slots that run them.
    pub(super) running: Vec<(Arc<Slots>, JobId)>,
    /// Offset that rotates the order of lanes with equal priority.
    pub(super) turn: usize,
}

impl CrashQuarantine {
    pub(super) fn new() -> Self {
        Self { quiet: None, waiting: None, next: Instant::now(), running: Vec::new(), turn: 0 }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.is_some()
    }

    /// Returns the time of the next query for quarantined jobs, or `None` if no quarantined jobs are waiting.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.map(|_| self.next)
    }

    pub(super) fn any_running(&self) -> bool {
        self.running.iter().any(|(slots, id)| slots.holds(*id))
    }

    /// Resumes normal claims until the next query for quarantined jobs. Normal claims run for as long as they were paused, but at least
    /// for `least`. Without this rule, many slow jobs of one crashed process would block all other jobs.
    pub(super) fn yield_to_others(&mut self, least: Duration) {
        let quiet = self.quiet.take().map_or(least, |since| since.elapsed());
        self.next = Instant::now() + quiet.max(least);
    }
}
