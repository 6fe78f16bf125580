//! Waiter that polls thousands of jobs over one connection, and the subscriptions to its snapshots.
//!
//! A waiter writes a row to request notifications, and commits this row before its first poll. A worker reads the row after it has
//! committed the end of a job, so each job that finishes after that poll causes a notification. If a notification is lost, the next
//! regular poll finds the result.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::PgPool;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    error::WaitError,
    poll::{JobSnapshot, is_temporary},
    waiter_connection::WaiterConnection,
};
use crate::{connect::JobRef, define::JobId, enqueue::store_error, error::Error, schema::Store};

/// Waiter of a [`Queue`](super::Queue) and its clones, started by the first wait.
#[derive(Clone, Default)]
pub(super) struct SharedWaiter(Arc<Mutex<Option<Waiter>>>);

/// Handle to the task that polls any number of jobs over one connection. While a wait is active, workers notify the task. Without active
/// waits, the task closes its connection. The task ends when the last clone of the handle is dropped.
#[derive(Clone)]
struct Waiter {
    inner: Arc<WaiterState>,
    _stop: Arc<DropGuard>,
}

struct WaiterState {
    pool: PgPool,
    store: Store,
    /// Subscriptions; `None` after the task has ended.
    subscriptions: Mutex<Option<Subscriptions>>,
    /// Wake-up for the polling task, sent when a job is added or has to be polled again.
    job_added: Notify,
}

#[derive(Default)]
struct Subscriptions {
    jobs: HashMap<JobId, Vec<Subscriber>>,
    /// Number of polls that have begun.
    polls: u64,
}

/// Sender of snapshots to one subscription.
struct Subscriber {
    /// Number of polls that began before the subscription. The snapshots of such polls may predate the subscription.
    since: u64,
    /// Whether the subscription is for progress. Progress causes no notifications, so the waiter must poll for progress.
    watching: bool,
    news: watch::Sender<Option<SnapshotResult>>,
}

type SnapshotResult = Result<Arc<JobSnapshot>, Arc<Error>>;

/// Subscription to the snapshots of one job. A job without subscriptions is no longer polled.
pub(super) struct JobSubscription {
    news: watch::Receiver<Option<SnapshotResult>>,
    _waiter: Waiter,
}

/// Poll interval while notifications are received.
const NOTIFIED_INTERVAL: Duration = Duration::from_secs(1);
/// Poll interval while progress is watched.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Poll interval while the waiter does not receive notifications.
const UNNOTIFIED_INTERVAL: Duration = Duration::from_millis(250);

/// Minimum pause between two polls. The pause is also at least twice as long as the last poll, which limits the load on the database.
const MIN_POLL_GAP: Duration = Duration::from_millis(2);

/// Time without active waits after which the waiter deletes the row that requests notifications, and closes its connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Maximum duration of a database outage during which polling is retried. A longer outage is reported to the waiting callers.
const MAX_OUTAGE: Duration = Duration::from_secs(30);

impl SharedWaiter {
    /// Subscribes to the snapshots of a job. Starts a waiter if none exists or if the waiter's task has ended. The task ends, for
    /// example, when its tokio runtime shuts down. Returns `None` if the current runtime is shutting down and starts no task.
    pub(super) fn subscribe(&self, pool: &PgPool, job: JobRef, watching: bool) -> Option<JobSubscription> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running = shared.as_ref().and_then(|waiter| waiter.subscribe(job.id(), watching));
        running.or_else(|| shared.insert(Waiter::start(pool, job.store())).subscribe(job.id(), watching))
    }
}

impl Waiter {
    fn start(pool: &PgPool, store: Store) -> Self {
        let subscriptions = Mutex::new(Some(Subscriptions::default()));
        let inner = Arc::new(WaiterState { pool: pool.clone(), store, subscriptions, job_added: Notify::new() });
        let stop = CancellationToken::new();
        tokio::spawn(run(EndedWaiter(Arc::clone(&inner)), stop.clone()));
        Self { inner, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Subscribes to the snapshots of a job, unless the waiter's task has ended.
    fn subscribe(&self, job: JobId, watching: bool) -> Option<JobSubscription> {
        let mut subscriptions = self.inner.lock();
        let Subscriptions { jobs, polls } = subscriptions.as_mut()?;
        let (sender, news) = watch::channel(None);
        jobs.entry(job).or_default().push(Subscriber { since: *polls, watching, news: sender });
        self.inner.job_added.notify_one();
        Some(JobSubscription { news, _waiter: self.clone() })
    }
}

impl JobSubscription {
    /// Waits for the next snapshot that differs from the previous snapshot. Returns `None` after the waiter's task has ended.
    pub(super) async fn next(&mut self) -> Option<Result<Arc<JobSnapshot>, WaitError>> {
        self.news.changed().await.ok()?;
        let seen = self.news.borrow_and_update().clone();
        seen.map(|seen| seen.map_err(WaitError::Store))
    }
}

/// Guard of the waiter's task. Dropping the guard ends all subscriptions, because no task polls their jobs any more.
struct EndedWaiter(Arc<WaiterState>);

impl Drop for EndedWaiter {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

impl Subscriber {
    /// Sends a snapshot if it differs from the last snapshot.
    fn send(&self, snapshot: &Arc<JobSnapshot>) {
        self.news.send_if_modified(|last| {
            let is_new = !matches!(last, Some(Ok(last)) if *last == *snapshot);
            if is_new {
                *last = Some(Ok(Arc::clone(snapshot)));
            }
            is_new
        });
    }
}

impl WaiterState {
    /// Locks the subscriptions. A poisoned lock is usable, because no code leaves them half-written.
    fn lock(&self) -> MutexGuard<'_, Option<Subscriptions>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a poll and returns its jobs: all jobs, or only the jobs with watched progress. Removes jobs without subscriptions.
    fn begin_poll(&self, all: bool) -> Vec<JobId> {
        let mut subscriptions = self.lock();
        let Some(Subscriptions { jobs, polls }) = subscriptions.as_mut() else { return Vec::new() };
        *polls += 1;
        jobs.retain(|_, subscribers| {
            subscribers.retain(|subscriber| !subscriber.news.is_closed());
            !subscribers.is_empty()
        });
        if jobs.is_empty() {
            jobs.shrink_to_fit();
        }
        let is_due = |subscribers: &[Subscriber]| all || subscribers.iter().any(|subscriber| subscriber.watching);
        jobs.iter().filter(|(_, subscribers)| is_due(subscribers)).map(|(job, _)| *job).collect()
    }

    /// Publishes the snapshot of a job to the subscriptions that began before the poll. If the job has finished, these subscriptions end.
    /// If the poll omitted the job's output, `snapshot` is `None`, and the job is polled again.
    fn publish(&self, job: JobId, snapshot: Option<JobSnapshot>) {
        let Some(snapshot) = snapshot.map(Arc::new) else { return self.job_added.notify_one() };
        let mut subscriptions = self.lock();
        let Some(Subscriptions { jobs, polls }) = subscriptions.as_mut() else { return };
        let Entry::Occupied(mut subscribers) = jobs.entry(job) else { return };
        subscribers.get().iter().filter(|subscriber| subscriber.since < *polls).for_each(|subscriber| subscriber.send(&snapshot));
        if snapshot.is_final() {
            subscribers.get_mut().retain(|subscriber| subscriber.since >= *polls);
        }
    }

    fn is_watched(&self) -> bool {
        self.lock().iter().flat_map(|subscriptions| subscriptions.jobs.values().flatten()).any(|subscriber| subscriber.watching)
    }

    /// Ends all subscriptions with an error.
    fn fail(&self, error: &Arc<Error>) {
        for subscriber in self.lock().iter_mut().flat_map(|subscriptions| subscriptions.jobs.drain()).flat_map(|(_, all)| all) {
            subscriber.news.send_replace(Some(Err(Arc::clone(error))));
        }
    }
}

async fn run(guard: EndedWaiter, stop: CancellationToken) {
    let mut connection = WaiterConnection::new(&guard.0.pool, guard.0.store);
    stop.run_until_cancelled(Box::pin(poll(&guard.0, &mut connection))).await;
    connection.close().await;
}

/// Polls the subscribed jobs until the future is dropped.
async fn poll(inner: &WaiterState, connection: &mut WaiterConnection) {
    let (mut failing_since, mut all_due_at): (Option<Instant>, Instant) = (None, Instant::now());
    let mut all = true;
    loop {
        let jobs = inner.begin_poll(all);
        if all && jobs.is_empty() {
            failing_since = None;
            tokio::select! {
                () = inner.job_added.notified() => {}
                () = sleep(IDLE_TIMEOUT), if connection.is_open() => connection.close().await,
            }
            continue;
        }
        let took = match connection.poll(&jobs, |job, snapshot| inner.publish(job, snapshot)).await {
            Ok(took) => took,
            Err(error) => {
                if !is_temporary(&error) || failing_since.get_or_insert_with(Instant::now).elapsed() > MAX_OUTAGE {
                    inner.fail(&Arc::new(store_error(error, inner.store)));
                }
                all = true;
                sleep(RETRY_DELAY).await;
                continue;
            }
        };
        failing_since = None;
        if all {
            all_due_at = Instant::now() + if connection.is_notified() { NOTIFIED_INTERVAL } else { UNNOTIFIED_INTERVAL };
        }
        sleep(MIN_POLL_GAP.max(2 * took)).await;
        all = tokio::select! {
            () = connection.notified() => true,
            () = inner.job_added.notified() => true,
            () = sleep_until(all_due_at) => true,
            () = sleep(WATCH_INTERVAL), if inner.is_watched() => false,
        };
    }
}
