//! How far a worker is with jobs that may have ended a process. Decides nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::JobId;

use crate::run::Slots;

/// Between two looks whether the process is idle.
pub(super) const TICK: Duration = Duration::from_millis(2);

/// How far this worker is with its suspects.
pub(super) struct Trial {
    /// Since when nothing else is claimed.
    pub(super) quiet: Option<Instant>,
    /// Since when some wait here.
    pub(super) waiting: Option<Instant>,
    /// None are looked for before this.
    pub(super) next: Instant,
    /// Those that were claimed last.
    pub(super) running: Vec<(Arc<Slots>, JobId)>,
    /// Which lane goes first.
    pub(super) turn: usize,
}

impl Trial {
    pub(super) fn new() -> Self {
        Self { quiet: None, waiting: None, next: Instant::now(), running: Vec::new(), turn: 0 }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.is_some()
    }

    /// When to look again, if some may wait.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.map(|_| self.next)
    }

    pub(super) fn any_run(&self) -> bool {
        self.running.iter().any(|(slots, id)| slots.holds(*id))
    }

    /// Others are claimed again, for as long as they were not and at least so long, lest one crash of many slow jobs stop everything else.
    pub(super) fn give_way(&mut self, least: Duration) {
        let quiet = self.quiet.take().map_or(least, |since| since.elapsed());
        self.next = Instant::now() + quiet.max(least);
    }
}
