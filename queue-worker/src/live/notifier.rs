//! Wake-ups for the poll loop and other tasks of a worker. This module does not access the database.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use uuid::Uuid;

use super::{ClaimInbox, LoopHealth};

/// Reason why the poll loop stopped waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// Jobs may be ready in any lane.
    Jobs,
    /// An event occurred that requires no probe of the lanes.
    Event,
    /// The wait's deadline has passed.
    Deadline,
}

/// Notifier that wakes the poll loop and other tasks of a worker.
#[derive(Default)]
pub(crate) struct Notifier {
    notify: Notify,
    /// Whether the pending wake-up requests a probe.
    probe_requested: AtomicBool,
    inboxes: Mutex<Vec<Arc<ClaimInbox>>>,
    due: Mutex<Option<Instant>>,
    /// Wakes the task that cancels running jobs.
    control: Notify,
    /// Whether [`Notifier::notify_control`] was called since the last check.
    control_changed: AtomicBool,
    /// Wakes the task that unblocks ordering keys.
    keys: Notify,
    /// Wakes the task that notifies waiting clients of finished jobs.
    finished: Notify,
    /// Wakes the task that fires schedules.
    schedules: Notify,
    /// Wakes the task that expires jobs.
    expiries: Notify,
    loop_health: LoopHealth,
}

impl Notifier {
    /// Creates a notifier with the health record of the worker's loops.
    pub(crate) fn of(loop_health: LoopHealth) -> Self {
        Self { loop_health, ..Self::default() }
    }

    pub(crate) fn loop_health(&self) -> &LoopHealth {
        &self.loop_health
    }

    /// Wakes the poll loop to probe all lanes.
    pub(crate) fn request_probe(&self) {
        self.probe_requested.store(true, Relaxed);
        self.notify.notify_one();
    }

    /// Wakes the poll loop without requesting a probe.
    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }

    pub(crate) fn set_inboxes(&self, inboxes: Vec<Arc<ClaimInbox>>) {
        *self.inboxes() = inboxes;
    }

    pub(crate) fn wake_claimers(&self) {
        for inbox in self.inboxes().iter() {
            inbox.wakeup().notify_one();
        }
    }

    /// Notifies the claimers with lanes under any of the rate limits `limit_ids`, because a permit expired before its job started.
    pub(crate) fn notify_late_start(&self, limit_ids: &[i64]) {
        for inbox in self.inboxes().iter().filter(|inbox| inbox.is_under(limit_ids)) {
            inbox.add(|notice| notice.late = true);
        }
    }

    /// Notifies the claimers with lanes under the limit `limit_id`, because another worker has released permits.
    pub(crate) fn notify_free_permit(&self, limit_id: i64) {
        for inbox in self.inboxes().iter().filter(|inbox| inbox.is_under(&[limit_id])) {
            inbox.add(|notice| notice.permit = true);
        }
    }

    /// Notifies the claimers with lanes under any of the limits `limit_ids`, because a finished job of the lease `token` has released its
    /// permits.
    pub(crate) fn notify_freed_permit(&self, token: Uuid, limit_ids: &[i64]) {
        for inbox in self.inboxes().iter().filter(|inbox| inbox.is_under(limit_ids)) {
            inbox.add(|notice| {
                notice.permit = true;
                notice.freed.insert(token);
            });
        }
    }

    /// Locks the claim inboxes. A poisoned lock stays usable, because a panic cannot leave the inboxes half-updated.
    fn inboxes(&self) -> MutexGuard<'_, Vec<Arc<ClaimInbox>>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task that unblocks ordering keys.
    pub(crate) fn notify_keys(&self) {
        self.keys.notify_one();
    }

    /// Waits for a call to [`Notifier::notify_keys`]. Returns immediately if there was a call since the last wait.
    pub(crate) async fn wait_for_keys(&self) {
        self.keys.notified().await;
    }

    /// Reports that running jobs may have been cancelled, or that a pause or limit has changed. Also requests a probe of all lanes.
    pub(crate) fn notify_control(&self) {
        self.control.notify_one();
        self.control_changed.store(true, Relaxed);
        self.request_probe();
    }

    /// Returns whether [`Notifier::notify_control`] was called since the last check.
    pub(crate) fn take_control_change(&self) -> bool {
        self.control_changed.swap(false, Relaxed)
    }

    /// Waits for a call to [`Notifier::notify_control`]. Returns immediately if there was a call since the last wait.
    pub(crate) async fn wait_for_control(&self) {
        self.control.notified().await;
    }

    /// Wakes the task that notifies waiting clients of finished jobs. Must be called after the commit that finishes the jobs.
    pub(crate) fn notify_finished(&self) {
        self.finished.notify_one();
    }

    /// Waits for a call to [`Notifier::notify_finished`]. Returns immediately if there was a call since the last wait.
    pub(crate) async fn wait_for_finished(&self) {
        self.finished.notified().await;
    }

    /// Wakes the task that fires schedules.
    pub(crate) fn notify_schedules(&self) {
        self.schedules.notify_one();
    }

    /// Waits for a call to [`Notifier::notify_schedules`]. Returns immediately if there was a call since the last wait.
    pub(crate) async fn wait_for_schedules(&self) {
        self.schedules.notified().await;
    }

    /// Wakes the task that expires jobs.
    pub(crate) fn notify_expiries(&self) {
        self.expiries.notify_one();
    }

    /// Waits for a call to [`Notifier::notify_expiries`]. Returns immediately if there was a call since the last wait.
    pub(crate) async fn wait_for_expiries(&self) {
        self.expiries.notified().await;
    }

    /// Records that a job is due after `wait`. Wakes the poll loop unless an earlier due time is known.
    pub(crate) fn notify_due(&self, wait: Duration) {
        if self.record_due(wait) {
            self.request_probe();
        }
    }

    /// Records that a job is due after `wait`. Returns whether this is the earliest known due time. Unlike [`Self::notify_due`], does not
    /// wake the poll loop, because the poll loop itself may be the caller.
    pub(crate) fn record_due(&self, wait: Duration) -> bool {
        let Some(at) = Instant::now().checked_add(wait) else { return false };
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = due.is_none_or(|known| at < known);
        if earlier {
            *due = Some(at);
        }
        earlier
    }

    /// Returns the earliest known due time of a job, or `None` if no due time is known.
    pub(crate) fn due(&self) -> Option<Instant> {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clears the earliest known due time. Called before the due time is queried again.
    pub(crate) fn forget_due(&self) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits for a wake-up or until `latest`, and returns the reason why the wait ended.
    pub(crate) async fn wait(&self, latest: Instant) -> WakeReason {
        let is_notified = tokio::time::timeout_at(latest.into(), self.notify.notified()).await.is_ok();
        match self.probe_requested.swap(false, Relaxed) {
            true => WakeReason::Jobs,
            false if is_notified => WakeReason::Event,
            false => WakeReason::Deadline,
        }
    }
}

/// Converts a wait time in milliseconds, as reported by the database, to a duration. Adds a margin, because a promotion that runs too
/// early finds no due job.
pub(crate) fn after_ms(ms: f64) -> Duration {
    Duration::from_secs_f64((ms.max(0.0) / 1000.0).min(1e9)) + Duration::from_micros(200)
}
