//! Wake-ups of the poll loop and of other tasks of a worker. Pure: no database access.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use uuid::Uuid;

use super::{ClaimHint, LoopHealth};

/// Why a wait of the poll loop ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// Jobs may be ready in any lane.
    Jobs,
    /// A specific event occurred: no reason to probe all lanes.
    Event,
    /// The deadline passed.
    Deadline,
}

/// Wakes the poll loop and other tasks of a worker.
#[derive(Default)]
pub(crate) struct Notifier {
    notify: Notify,
    /// Whether the pending wake-up asks for a probe.
    probe_requested: AtomicBool,
    /// Hints of all claimers.
    hints: Mutex<Vec<Arc<ClaimHint>>>,
    due: Mutex<Option<Instant>>,
    /// Wakes the task that cancels running jobs.
    control: Notify,
    /// Set with `control`, which may also announce a pause.
    control_changed: AtomicBool,
    /// Ordering keys may be unblocked.
    keys: Notify,
    /// Jobs have finished, which producers may wait for.
    finished: Notify,
    /// Schedules were created or changed.
    schedules: Notify,
    /// Jobs with an expiry were enqueued.
    expiries: Notify,
    /// Health of the worker's loops.
    loop_health: LoopHealth,
}

impl Notifier {
    /// Creates the wake-ups of loops that report to this health record.
    pub(crate) fn of(loop_health: LoopHealth) -> Self {
        Self { loop_health, ..Self::default() }
    }

    /// Returns the health record of the worker's loops.
    pub(crate) fn loop_health(&self) -> &LoopHealth {
        &self.loop_health
    }

    /// Wakes the poll loop to probe all lanes.
    pub(crate) fn request_probe(&self) {
        self.probe_requested.store(true, Relaxed);
        self.notify.notify_one();
    }

    /// Wakes the poll loop without asking for a probe.
    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }

    /// Replaces the hints of all claimers.
    pub(crate) fn set_hints(&self, hints: Vec<Arc<ClaimHint>>) {
        *self.hints() = hints;
    }

    /// Wakes every claimer.
    pub(crate) fn wake_claimers(&self) {
        for hint in self.hints().iter() {
            hint.wakeup().notify_one();
        }
    }

    /// Records that a job started too late under these rate limits.
    pub(crate) fn notify_late_start(&self, gates: &[i64]) {
        for hint in self.hints().iter().filter(|hint| hint.is_under(gates)) {
            hint.add(|notice| notice.late = true);
        }
    }

    /// Records that another worker has released permits of a limit.
    pub(crate) fn notify_free_permit(&self, gate: i64) {
        for hint in self.hints().iter().filter(|hint| hint.is_under(&[gate])) {
            hint.add(|notice| notice.room = true);
        }
    }

    /// Records that a job of this lease has finished, which held permits of these limits.
    pub(crate) fn notify_freed_permit(&self, token: Uuid, gates: &[i64]) {
        for hint in self.hints().iter().filter(|hint| hint.is_under(gates)) {
            hint.add(|notice| {
                notice.room = true;
                notice.freed.insert(token);
            });
        }
    }

    /// No update under this lock can be left incomplete, so a poisoned lock is usable.
    fn hints(&self) -> MutexGuard<'_, Vec<Arc<ClaimHint>>> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task that unblocks ordering keys.
    pub(crate) fn notify_keys(&self) {
        self.keys.notify_one();
    }

    /// Waits for [`Notifier::notify_keys`].
    pub(crate) async fn wait_for_keys(&self) {
        self.keys.notified().await;
    }

    /// Records that running jobs may have been cancelled, or that something was paused or resumed.
    pub(crate) fn notify_control(&self) {
        self.control.notify_one();
        self.control_changed.store(true, Relaxed);
        self.request_probe();
    }

    /// Returns whether that was recorded since the last call.
    pub(crate) fn take_control_change(&self) -> bool {
        self.control_changed.swap(false, Relaxed)
    }

    /// Waits for the next such record, or returns immediately if there was one since the last call.
    pub(crate) async fn wait_for_control(&self) {
        self.control.notified().await;
    }

    /// Records that jobs have finished, after the commit.
    pub(crate) fn notify_finished(&self) {
        self.finished.notify_one();
    }

    /// Waits for finished jobs, or returns immediately if there were some since the last call.
    pub(crate) async fn wait_for_finished(&self) {
        self.finished.notified().await;
    }

    /// Wakes the task that fires schedules.
    pub(crate) fn notify_schedules(&self) {
        self.schedules.notify_one();
    }

    /// Waits for [`Notifier::notify_schedules`], or returns immediately if it was called since the last wait.
    pub(crate) async fn wait_for_schedules(&self) {
        self.schedules.notified().await;
    }

    /// Wakes the task that expires jobs.
    pub(crate) fn notify_expiries(&self) {
        self.expiries.notify_one();
    }

    /// Waits for [`Notifier::notify_expiries`], or returns immediately if it was called since the last wait.
    pub(crate) async fn wait_for_expiries(&self) {
        self.expiries.notified().await;
    }

    /// Records that a job is due after this time, and wakes the poll loop if that is earlier than known.
    pub(crate) fn notify_due(&self, wait: Duration) {
        if self.record_due(wait) {
            self.request_probe();
        }
    }

    /// The same without waking the poll loop, for calls from the loop itself. Returns whether it is earlier than known.
    pub(crate) fn record_due(&self, wait: Duration) -> bool {
        let Some(at) = Instant::now().checked_add(wait) else { return false };
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = due.is_none_or(|known| at < known);
        if earlier {
            *due = Some(at);
        }
        earlier
    }

    /// Returns when the next job is due, if known.
    pub(crate) fn due(&self) -> Option<Instant> {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the due time, because the caller is about to query it.
    pub(crate) fn forget_due(&self) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits for a wake-up, at most until `latest`.
    pub(crate) async fn wait(&self, latest: Instant) -> WakeReason {
        let is_notified = tokio::time::timeout_at(latest.into(), self.notify.notified()).await.is_ok();
        match self.probe_requested.swap(false, Relaxed) {
            true => WakeReason::Jobs,
            false if is_notified => WakeReason::Event,
            false => WakeReason::Deadline,
        }
    }
}

/// Converts a wait in milliseconds reported by the database. Slightly late: promoting too early would find nothing due.
pub(crate) fn after_ms(ms: f64) -> Duration {
    Duration::from_secs_f64((ms.max(0.0) / 1000.0).min(1e9)) + Duration::from_micros(200)
}
