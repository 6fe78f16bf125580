//! What ends the scout's wait: something rings, or a time has come. Knows nothing of the database.

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

/// What has ended a wait of the scout.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There may be jobs anywhere.
    Rung,
    /// Something has come that was waited for: no reason to look for jobs everywhere.
    Nudged,
    /// It is time.
    Due,
}

/// Wakes the scout.
#[derive(Default)]
pub(crate) struct Bell {
    notify: Notify,
    /// It was rung, and not only nudged.
    asked: AtomicBool,
    /// Those of the claimers of groups of lanes.
    hints: Mutex<Vec<Arc<Hint>>>,
    due: Mutex<Option<Instant>>,
    /// Rung for what is to be done to running jobs.
    control: Notify,
    /// The same was said, which may be of a pause.
    news: AtomicBool,
    /// Ordering keys may go on.
    keys: Notify,
    /// Jobs are over, which somebody may wait for.
    over: Notify,
    /// Schedules have changed, or there are some.
    schedules: Notify,
    /// Jobs are to expire.
    expiries: Notify,
    /// How the loops that have this are doing.
    vitals: Vitals,
}

impl Bell {
    /// For loops that set these marks.
    pub(crate) fn of(vitals: Vitals) -> Self {
        Self { vitals, ..Self::default() }
    }

    /// Where a loop says how it is doing.
    pub(crate) fn vitals(&self) -> &Vitals {
        &self.vitals
    }

    /// Ends the loop's wait, or its next one if it is not waiting now.
    pub(crate) fn ring(&self) {
        self.asked.store(true, Relaxed);
        self.notify.notify_one();
    }

    /// Ends the loop's wait for something that is no reason to look for jobs everywhere.
    pub(crate) fn nudge(&self) {
        self.notify.notify_one();
    }

    /// From now on these are the claimers of groups of lanes.
    pub(crate) fn set_hints(&self, hints: Vec<Arc<Hint>>) {
        *self.hints() = hints;
    }

    /// Ends the wait of every claimer of a group.
    pub(crate) fn nudge_claimers(&self) {
        for hint in self.hints().iter() {
            hint.notify().notify_one();
        }
    }

    /// A job came too late to begin under the rates of these limits.
    pub(crate) fn note_late(&self, gates: &[i64]) {
        for hint in self.hints().iter().filter(|hint| hint.is_under(gates)) {
            hint.tell(|told| told.late = true);
        }
    }

    /// A limit has permits again, as another worker says.
    pub(crate) fn note_room(&self, gate: i64) {
        for hint in self.hints().iter().filter(|hint| hint.is_under(&[gate])) {
            hint.tell(|told| told.room = true);
        }
    }

    /// A job of this lease has ended here, which held permits of these limits.
    pub(crate) fn note_freed(&self, token: Uuid, gates: &[i64]) {
        for hint in self.hints().iter().filter(|hint| hint.is_under(gates)) {
            hint.tell(|told| {
                told.room = true;
                told.freed.insert(token);
            });
        }
    }

    /// Nothing is half-written under this lock, so that one which a panic left poisoned is as good as any.
    fn hints(&self) -> MutexGuard<'_, Vec<Arc<Hint>>> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ordering keys may go on: for whoever sees to it.
    pub(crate) fn tell_keys(&self) {
        self.keys.notify_one();
    }

    /// Until [`Bell::tell_keys`].
    pub(crate) async fn keys(&self) {
        self.keys.notified().await;
    }

    /// Some running job may have been cancelled, or something was paused or resumed.
    pub(crate) fn note_control(&self) {
        self.control.notify_one();
        self.news.store(true, Relaxed);
        self.ring();
    }

    /// Whether that was said since the last call.
    pub(crate) fn take_news(&self) -> bool {
        self.news.swap(false, Relaxed)
    }

    /// Until that is said, or at once if it was since the last time.
    pub(crate) async fn control(&self) {
        self.control.notified().await;
    }

    /// Jobs were ended, and it is committed.
    pub(crate) fn note_over(&self) {
        self.over.notify_one();
    }

    /// Until jobs were ended since the last call.
    pub(crate) async fn jobs_over(&self) {
        self.over.notified().await;
    }

    /// There are schedules, or they have changed: for whoever sees to their ticks.
    pub(crate) fn tell_schedules(&self) {
        self.schedules.notify_one();
    }

    /// Until that is said, or at once if it was since the last time.
    pub(crate) async fn schedules(&self) {
        self.schedules.notified().await;
    }

    /// Jobs are to expire: for whoever sees to it.
    pub(crate) fn tell_expiries(&self) {
        self.expiries.notify_one();
    }

    /// Until that is said, or at once if it was since the last time.
    pub(crate) async fn expiries(&self) {
        self.expiries.notified().await;
    }

    /// Something is to be promoted in this long; rings if that is earlier than was known.
    pub(crate) fn due_in(&self, wait: Duration) {
        if self.note_due(wait) {
            self.ring();
        }
    }

    /// As [`Bell::due_in`], said by the loop itself, which does not ring for itself. Returns whether it is earlier than was known.
    pub(crate) fn note_due(&self, wait: Duration) -> bool {
        let Some(at) = Instant::now().checked_add(wait) else { return false };
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = due.is_none_or(|known| at < known);
        if earlier {
            *due = Some(at);
        }
        earlier
    }

    /// When something is to be promoted, as far as is known.
    pub(crate) fn due(&self) -> Option<Instant> {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the time, because the caller is about to ask the database for it.
    pub(crate) fn forget_due(&self) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Until rung or nudged, or until `latest`.
    pub(crate) async fn wait(&self, latest: Instant) -> Woken {
        let told = tokio::time::timeout_at(latest.into(), self.notify.notified()).await.is_ok();
        match self.asked.swap(false, Relaxed) {
            true => Woken::Rung,
            false if told => Woken::Nudged,
            false => Woken::Due,
        }
    }
}

/// How long to wait for what the database says is due in so many ms: a little late rather than a little early, when there would be nothing
/// to promote yet.
pub(crate) fn after_ms(ms: f64) -> Duration {
    Duration::from_secs_f64((ms.max(0.0) / 1000.0).min(1e9)) + Duration::from_micros(200)
}
