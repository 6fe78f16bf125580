//! State of a store for the poller: whether the store has a worker, has failed, or has pending work.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use queue_core::stores::Member;
use tokio::sync::Notify;

/// Store of a multi-store worker, with the state for the poller.
pub(super) struct StoreEntry {
    pub(super) member: Member,
    /// Store number, unique within the process.
    pub(super) number: u64,
    /// Job types and queues whose jobs count as pending work.
    pub(super) served: ServedScope,
    state: Mutex<EntryState>,
    work_requested: Notify,
}

/// Job types and queues that a worker serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServedScope {
    pub(super) types: Vec<String>,
    /// Served queues. `None` stands for all queues.
    pub(super) queues: Option<Vec<String>>,
}

#[derive(Default)]
struct EntryState {
    awake: bool,
    failure: Option<StoreFailure>,
}

/// Current failure of a store, with the time of the next retry.
struct StoreFailure {
    /// Whether the store's worker has failed. `false` if polling the store failed.
    of_worker: bool,
    retry_at: Instant,
    pause: Duration,
}

/// Delay before the first retry of a failed store. The delay doubles with each retry, up to [`MAX_RETRY_DELAY`].
const RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

impl StoreEntry {
    pub(super) fn new(member: Member, number: u64, served: ServedScope) -> Self {
        Self { member, number, served, state: Mutex::default(), work_requested: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, EntryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records whether the store has a worker.
    pub(super) fn set_awake(&self, awake: bool) {
        self.state().awake = awake;
    }

    pub(super) fn is_awake(&self) -> bool {
        self.state().awake
    }

    /// Waits until [`StoreEntry::request_worker`] is called.
    pub(super) async fn work_requested(&self) {
        self.work_requested.notified().await;
    }

    /// Requests a worker, unless the store already has a worker.
    pub(super) fn request_worker(&self) {
        if !self.is_awake() {
            self.work_requested.notify_one();
        }
    }

    /// Records a failure of the store's worker and schedules a retry. Only the first failure is logged.
    pub(super) fn record_failure(&self, error: &str) {
        self.record(true, error);
    }

    /// Records a failure to poll the store and schedules a retry. Only the first failure is logged.
    pub(super) fn record_unreachable(&self, error: &str) {
        self.record(false, error);
    }

    fn record(&self, of_worker: bool, error: &str) {
        let mut state = self.state();
        let before = state.failure.take();
        let (is_new, of_worker) = (before.is_none(), of_worker || before.as_ref().is_some_and(|failure| failure.of_worker));
        let pause = before.map_or(RETRY_DELAY, |failure| (2 * failure.pause).min(MAX_RETRY_DELAY));
        state.failure = Some(StoreFailure { of_worker, retry_at: Instant::now() + pause, pause });
        drop(state);
        if is_new {
            tracing::warn!(
                store = self.member.name(),
                schema = self.member.store().schema(),
                error,
                "store unavailable: its jobs wait, other stores continue"
            );
        }
    }

    /// Returns whether the store has failed. A failed store is polled separately.
    pub(super) fn has_failed(&self) -> bool {
        self.state().failure.is_some()
    }

    pub(super) fn is_retry_due(&self) -> bool {
        self.state().failure.as_ref().is_some_and(|failure| Instant::now() >= failure.retry_at)
    }

    /// Returns whether the current failure is a failed poll instead of a failed worker.
    pub(super) fn is_unreachable(&self) -> bool {
        self.state().failure.as_ref().is_some_and(|failure| !failure.of_worker)
    }

    /// Records a successful poll. A failure of the store's worker remains recorded until a worker runs again.
    pub(super) fn record_reachable(&self) {
        let mut state = self.state();
        match &mut state.failure {
            Some(failure) if failure.of_worker => failure.retry_at = Instant::now() + failure.pause,
            _ => {
                drop(state);
                self.record_recovered();
            }
        }
    }

    /// Records that the store works again, and clears the failure.
    pub(super) fn record_recovered(&self) {
        if self.state().failure.take().is_some() {
            tracing::info!(store = self.member.name(), "store available again");
        }
    }
}
