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

use super::{Hint, Vitals};

/// Why a wait of the poll loop ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Jobs may be ready in any lane.
    Rung,
    /// A specific event occurred: no reason to probe all lanes.
    Nudged,
    /// The deadline passed.
    Due,
}

/// Wakes the poll loop and other tasks of a worker.
#[derive(Default)]
pub(crate) struct Bell {
    notify: Notify,
    /// Whether the pending wake-up asks for a probe.
    asked: AtomicBool,
    /// Hints of all claimers.
    hints: Mutex<Vec<Arc<Hint>>>,
    due: Mutex<Option<Instant>>,
    /// Wakes the task that cancels running jobs.
    control: Notify,
    /// Set with `control`, which may also announce a pause.
    news: AtomicBool,
    /// Ordering keys may be unblocked.
    keys: Notify,
    /// Jobs have finished, which producers may wait for.
    over: Notify,
    /// Schedules were created or changed.
    schedules: Notify,
    /// Jobs with an expiry were enqueued.
    expiries: Notify,
    /// Health of the worker's loops.
    vitals: Vitals,
}

impl Bell {
    /// Creates the wake-ups of loops that report to this health record.
    pub(crate) fn of(vitals: Vitals) -> Self {
        Self { vitals, ..Self::default() }
    }

    /// Returns the health record of the worker's loops.
    pub(crate) fn vitals(&self) -> &Vitals {
        &self.vitals
    }

    /// Wakes the poll loop to probe all lanes.
    pub(crate) fn ring(&self) {
        self.asked.store(true, Relaxed);
        self.notify.notify_one();
    }

    /// Wakes the poll loop without asking for a probe.
    pub(crate) fn nudge(&self) {
        self.notify.notify_one();
    }

    /// Replaces the hints of all claimers.
    pub(crate) fn set_hints(&self, hints: Vec<Arc<Hint>>) {
        *self.hints() = hints;
    }

    /// Wakes every claimer.
    pub(crate) fn nudge_claimers(&self) {
        for hint in self.hints().iter() {
            hint.notify().notify_one();
        }
    }

    /// Records that a job started too late under these rate limits.
    pub(crate) fn note_late(&self, gates: &[i64]) {
        for hint in self.hints().iter().filter(|hint| hint.is_under(gates)) {
            hint.tell(|told| told.late = true);
        }
    }

    /// Records that another worker has released permits of a limit.
    pub(crate) fn note_room(&self, gate: i64) {
        for hint in self.hints().iter().filter(|hint| hint.is_under(&[gate])) {
            hint.tell(|told| told.room = true);
        }
    }

    /// Records that a job of this lease has finished, which held permits of these limits.
    pub(crate) fn note_freed(&self, token: Uuid, gates: &[i64]) {
        for hint in self.hints().iter().filter(|hint| hint.is_under(gates)) {
            hint.tell(|told| {
                told.room = true;
                told.freed.insert(token);
            });
        }
    }

    /// No update under this lock can be left incomplete, so a poisoned lock is usable.
    fn hints(&self) -> MutexGuard<'_, Vec<Arc<Hint>>> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task that unblocks ordering keys.
    pub(crate) fn tell_keys(&self) {
        self.keys.notify_one();
    }

    /// Waits for [`Bell::tell_keys`].
    pub(crate) async fn keys(&self) {
        self.keys.notified().await;
    }

    /// Records that running jobs may have been cancelled, or that something was paused or resumed.
    pub(crate) fn note_control(&self) {
        self.control.notify_one();
        self.news.store(true, Relaxed);
        self.ring();
    }

    /// Returns whether that was recorded since the last call.
    pub(crate) fn take_news(&self) -> bool {
        self.news.swap(false, Relaxed)
    }

    /// Waits for the next such record, or returns immediately if there was one since the last call.
    pub(crate) async fn control(&self) {
        self.control.notified().await;
    }

    /// Records that jobs have finished, after the commit.
    pub(crate) fn note_over(&self) {
        self.over.notify_one();
    }

    /// Waits for finished jobs, or returns immediately if there were some since the last call.
    pub(crate) async fn jobs_over(&self) {
        self.over.notified().await;
    }

    /// Wakes the task that fires schedules.
    pub(crate) fn tell_schedules(&self) {
        self.schedules.notify_one();
    }

    /// Waits for [`Bell::tell_schedules`], or returns immediately if it was called since the last wait.
    pub(crate) async fn schedules(&self) {
        self.schedules.notified().await;
    }

    /// Wakes the task that expires jobs.
    pub(crate) fn tell_expiries(&self) {
        self.expiries.notify_one();
    }

    /// Waits for [`Bell::tell_expiries`], or returns immediately if it was called since the last wait.
    pub(crate) async fn expiries(&self) {
        self.expiries.notified().await;
    }

    /// Records that a job is due after this time, and wakes the poll loop if that is earlier than known.
    pub(crate) fn due_in(&self, wait: Duration) {
        if self.note_due(wait) {
            self.ring();
        }
    }

    /// The same without waking the poll loop, for calls from the loop itself. Returns whether it is earlier than known.
    pub(crate) fn note_due(&self, wait: Duration) -> bool {
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
    pub(crate) async fn wait(&self, latest: Instant) -> Woken {
        let told = tokio::time::timeout_at(latest.into(), self.notify.notified()).await.is_ok();
        match self.asked.swap(false, Relaxed) {
            true => Woken::Rung,
            false if told => Woken::Nudged,
            false => Woken::Due,
        }
    }
}

/// Converts a wait in milliseconds reported by the database. Slightly late: promoting too early would find nothing due.
pub(crate) fn after_ms(ms: f64) -> Duration {
    Duration::from_secs_f64((ms.max(0.0) / 1000.0).min(1e9)) + Duration::from_micros(200)
}
