//! Waiting for thousands of jobs over one connection.
//!
//! The row that requests notifications is committed before the first poll. Workers read that row after their commits, so each job that
//! finishes after the poll causes a notification. If a notification is lost, the next regular poll finds the result.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::PgPool;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    error::WaitError,
    poll::{JobSnapshot, WaitOutcome, is_temporary},
    waiter_connection::{MAX_JOBS, WaiterConnection},
};
use crate::{connect::JobRef, define::JobId, enqueue::store_error, error::Error, schema::Store};

/// Waiter of a [`Queue`](super::Queue) and its clones, started by the first wait.
#[derive(Clone, Default)]
pub(super) struct SharedWaiter(Arc<Mutex<Option<Waiter>>>);

/// Task that polls any number of jobs over one connection. While a wait is active, workers notify the waiter. Without active waits, the
/// waiter closes its connection. The task ends when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Waiter {
    inner: Arc<WaiterState>,
    _stop: Arc<DropGuard>,
}

struct WaiterState {
    pool: PgPool,
    store: Store,
    jobs: Mutex<HashMap<JobId, watch::Sender<Option<SnapshotResult>>>>,
    /// Wake-up for the polling task, sent when a job is added.
    job_added: Notify,
    /// Whether the waiter's task has ended. Changed only while `jobs` is locked.
    has_ended: AtomicBool,
    /// Number of progress watches. Progress causes no notifications, so the waiter must poll for progress.
    watching: AtomicUsize,
}

type SnapshotResult = Result<Arc<JobSnapshot>, Arc<Error>>;

/// Poll interval while notifications are received.
const NOTIFIED_INTERVAL: Duration = Duration::from_secs(1);
/// Poll interval while progress is watched.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Poll interval while the waiter does not receive notifications.
const UNNOTIFIED_INTERVAL: Duration = Duration::from_millis(250);

/// Minimum pause between two polls. After a slow poll, the pause is twice as long as the poll.
const MIN_POLL_GAP: Duration = Duration::from_millis(2);

/// Time without waits before the row that requests notifications is deleted and the connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Maximum duration of a database outage during which polling is retried. A longer outage is reported to the waiting callers.
const MAX_OUTAGE: Duration = Duration::from_secs(30);

impl SharedWaiter {
    /// Subscribes to the snapshots of a job. Starts a waiter if there is none, or if its task has ended, for example with its tokio
    /// runtime.
    pub(super) fn subscribe(&self, pool: &PgPool, job: JobRef, watching: bool) -> JobSubscription {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let waiter = shared.get_or_insert_with(|| Waiter::start(pool, job.store()));
            match waiter.subscribe(job.id(), watching) {
                Some(subscription) => break subscription,
                None => *shared = None,
            }
        }
    }
}

impl Waiter {
    fn start(pool: &PgPool, store: Store) -> Self {
        let inner = Arc::new(WaiterState {
            pool: pool.clone(),
            store,
            jobs: Mutex::default(),
            job_added: Notify::new(),
            has_ended: AtomicBool::new(false),
            watching: AtomicUsize::new(0),
        });
        let stop = CancellationToken::new();
        tokio::spawn(run(EndedWaiter(Arc::clone(&inner)), stop.clone()));
        Self { inner, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Subscribes to the snapshots of a job, unless the waiter's task has ended.
    fn subscribe(&self, job: JobId, watching: bool) -> Option<JobSubscription> {
        let mut jobs = self.inner.lock();
        if self.inner.has_ended.load(Relaxed) {
            return None;
        }
        let mut seen = jobs.entry(job).or_insert_with(|| watch::Sender::new(None)).subscribe();
        seen.mark_changed();
        self.inner.watching.fetch_add(usize::from(watching), Relaxed);
        self.inner.job_added.notify_one();
        Some(JobSubscription { waiter: self.clone(), seen, watching })
    }
}

/// Guard of the waiter's task. Its drop ends all waits with an error, because nothing polls for them any longer.
struct EndedWaiter(Arc<WaiterState>);

impl Drop for EndedWaiter {
    fn drop(&mut self) {
        let mut jobs = self.0.lock();
        self.0.has_ended.store(true, Relaxed);
        jobs.clear();
    }
}

/// Subscription to the snapshots of one job. A job without subscriptions is no longer polled.
pub(super) struct JobSubscription {
    waiter: Waiter,
    seen: watch::Receiver<Option<SnapshotResult>>,
    watching: bool,
}

impl JobSubscription {
    /// Waits for the next snapshot that differs from the previous snapshot.
    pub(super) async fn next(&mut self) -> Result<Arc<JobSnapshot>, WaitError> {
        loop {
            self.seen.changed().await.map_err(|_| WaitError::store(Error::Database(sqlx::Error::WorkerCrashed)))?;
            if let Some(seen) = self.seen.borrow_and_update().clone() {
                return seen.map_err(WaitError::Store);
            }
        }
    }
}

impl Drop for JobSubscription {
    fn drop(&mut self) {
        self.waiter.inner.watching.fetch_sub(usize::from(self.watching), Relaxed);
    }
}

impl WaiterState {
    /// Locks the map. A poisoned lock is usable, because no code leaves the map half-written.
    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, watch::Sender<Option<SnapshotResult>>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the jobs that have subscriptions, and removes all other jobs.
    fn subscribed_jobs(&self) -> Vec<JobId> {
        let mut jobs = self.lock();
        jobs.retain(|_, seen| seen.receiver_count() > 0);
        if jobs.is_empty() && jobs.capacity() > MAX_JOBS {
            jobs.shrink_to_fit();
        }
        jobs.keys().copied().collect()
    }

    /// Publishes a snapshot of a job if it differs from the last snapshot. Removes the job once it has finished. A truncated snapshot is
    /// polled again.
    fn publish(&self, job: JobId, snapshot: JobSnapshot) {
        if snapshot.outcome == WaitOutcome::Truncated {
            return self.job_added.notify_one();
        }
        let is_finished = snapshot.progress.over.is_some() || snapshot == JobSnapshot::not_found();
        let mut jobs = self.lock();
        let Some(seen) = jobs.get(&job) else { return };
        seen.send_if_modified(|last| {
            let news = !matches!(last, Some(Ok(last)) if **last == snapshot);
            if news {
                *last = Some(Ok(Arc::new(snapshot)));
            }
            news
        });
        if is_finished {
            jobs.remove(&job);
        }
    }

    fn poll_interval(&self, is_listening: bool) -> Duration {
        match (self.watching.load(Relaxed), is_listening) {
            (1.., _) => WATCH_INTERVAL,
            (0, true) => NOTIFIED_INTERVAL,
            (0, false) => UNNOTIFIED_INTERVAL,
        }
    }

    /// Reports an error to all subscriptions, and removes their jobs.
    fn fail(&self, error: &Arc<Error>) {
        for (_, seen) in self.lock().drain() {
            seen.send_replace(Some(Err(Arc::clone(error))));
        }
    }
}

async fn run(guard: EndedWaiter, stop: CancellationToken) {
    let inner = &*guard.0;
    let mut connection = WaiterConnection::new(&inner.pool, inner.store);
    let mut failing: Option<Instant> = None;
    loop {
        let jobs = inner.subscribed_jobs();
        if jobs.is_empty() {
            failing = None;
            tokio::select! {
                () = stop.cancelled() => break,
                () = inner.job_added.notified() => continue,
                () = tokio::time::sleep(IDLE_TIMEOUT), if connection.is_open() => {}
            }
            connection.close().await;
            continue;
        }
        let began = Instant::now();
        let pause = match connection.poll(&jobs, |job, snapshot| inner.publish(job, snapshot)).await {
            Ok(()) => {
                failing = None;
                None
            }
            Err(error) => {
                if !is_temporary(&error) || failing.get_or_insert(began).elapsed() > MAX_OUTAGE {
                    inner.fail(&Arc::new(store_error(error, inner.store)));
                }
                Some(RETRY_DELAY)
            }
        };
        let pause = pause.unwrap_or_else(|| MIN_POLL_GAP.max(2 * began.elapsed()));
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
        let interval = inner.poll_interval(connection.is_announced());
        tokio::select! {
            () = stop.cancelled() => break,
            () = connection.notified() => {}
            () = inner.job_added.notified() => {}
            () = tokio::time::sleep(interval) => {}
        }
    }
    connection.close().await;
}
