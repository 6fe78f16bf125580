//! State of a store as the poller sees it: whether it has a worker, whether it works, and whether there is something to do.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use queue_core::stores::Member;
use tokio::sync::Notify;

/// A store of a multi-store worker.
pub(super) struct StoreEntry {
    pub(super) member: Member,
    /// Unique within the process.
    pub(super) number: u64,
    /// Types and queues whose jobs count as work.
    pub(super) served: ServedScope,
    state: Mutex<EntryState>,
    work_requested: Notify,
}

/// Types and queues that a worker serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServedScope {
    pub(super) types: Vec<String>,
    /// `None` means any queue.
    pub(super) queues: Option<Vec<String>>,
}

#[derive(Default)]
struct EntryState {
    awake: bool,
    failure: Option<StoreFailure>,
}

/// Current failure of a store.
struct StoreFailure {
    /// Whether the failure concerns its worker. Otherwise the store cannot even be polled.
    of_worker: bool,
    retry_at: Instant,
    pause: Duration,
}

/// Delay before a failed store is retried. Doubles each time, up to the maximum.
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

    /// Returns whether the store has a worker.
    pub(super) fn is_awake(&self) -> bool {
        self.state().awake
    }

    /// Waits until the store needs a worker.
    pub(super) async fn work_requested(&self) {
        self.work_requested.notified().await;
    }

    /// Requests a worker for the store.
    pub(super) fn request_worker(&self) {
        if !self.is_awake() {
            self.work_requested.notify_one();
        }
    }

    /// Records a failure of the worker. Logs the first failure, and retries later.
    pub(super) fn record_failure(&self, error: &str) {
        self.record(true, error);
    }

    /// Records a failure to poll the store. Logs the first failure, and retries later.
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

    /// Returns whether the store must not be polled together with others.
    pub(super) fn has_failed(&self) -> bool {
        self.state().failure.is_some()
    }

    /// Returns whether the store is due for a retry.
    pub(super) fn is_retry_due(&self) -> bool {
        self.state().failure.as_ref().is_some_and(|failure| Instant::now() >= failure.retry_at)
    }

    /// Returns whether the store cannot even be polled.
    pub(super) fn is_unreachable(&self) -> bool {
        self.state().failure.as_ref().is_some_and(|failure| !failure.of_worker)
    }

    /// Records that the store can be polled. Whether it can have a worker turns out only when it gets one.
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

    /// Records that the store works.
    pub(super) fn record_recovered(&self) {
        if self.state().failure.take().is_some() {
            tracing::info!(store = self.member.name(), "store available again");
        }
    }
}
