//! Waiting for thousands of jobs over one connection. Notifications arrive on this connection, and each query polls up to a thousand jobs.
//!
//! The row that requests notifications is committed before the first poll. Workers read that row after their commits, so each job that
//! finishes after the poll causes a notification. If a notification is lost, the next regular poll finds the result.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::{
    ConnectOptions as _, PgPool,
    postgres::{PgConnectOptions, PgListener},
};
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::error::WaitError;
use super::node::ListenNode;
use super::poll::{JobSnapshot, MAX_OUTAGE, WaitOutcome, is_temporary, poll_jobs, poller_stopped};
use crate::{
    connect::JobRef,
    define::JobId,
    enqueue::store_error,
    error::Error,
    schema::{Channel, ListenerConnection, NO_SESSION, Store},
};

/// Waiter for any number of jobs, with one dedicated connection.
///
/// A waiter suits processes that wait for many jobs, such as web servers. Create one waiter, clone the waiter as needed, and pass a clone
/// instead of a pool: `handle.wait(&waiter)`, `handle.watch(&waiter)`.
///
/// While a wait is active, workers notify the waiter, so a result arrives milliseconds after its commit. If a notification is lost, the
/// result is found within a second. Without active waits, the waiter is idle. The waiter stops when its last clone is dropped.
///
/// ```no_run
/// # use queue_core::{JobHandle, Waiter, job};
/// # use serde::{Deserialize, Serialize};
/// # #[job(send_only, output = i64)]
/// # #[derive(Serialize, Deserialize)]
/// # struct Add(i64, i64);
/// # async fn example(pool: sqlx::PgPool, handle: JobHandle<Add>) -> Result<(), queue_core::WaitError> {
/// let waiter = Waiter::start(&pool);
/// let sum = handle.wait(&waiter).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Waiter {
    inner: Arc<WaiterState>,
    _stop: Arc<DropGuard>,
}

struct WaiterState {
    pool: PgPool,
    store: Store,
    jobs: Mutex<HashMap<JobId, watch::Sender<Option<SnapshotResult>>>>,
    /// Wake-up for the polling task, sent when a job is added.
    job_added: Notify,
    /// Number of progress watches. Progress causes no notifications, so the waiter must poll for progress.
    watching: AtomicUsize,
}

type SnapshotResult = Result<Arc<JobSnapshot>, Arc<Error>>;

/// Maximum number of jobs per poll.
const MAX_JOBS: usize = 1000;

/// Poll interval while notifications are received.
const NOTIFIED_INTERVAL: Duration = Duration::from_secs(1);
/// Poll interval while progress is watched.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Poll interval while the waiter does not receive notifications.
const UNNOTIFIED_INTERVAL: Duration = Duration::from_millis(250);

/// Minimum pause between two polls. After a slow poll, the pause is twice as long as the poll.
const MIN_POLL_GAP: Duration = Duration::from_millis(2);

/// Renewal interval of the row that requests notifications. The row expires after a minute.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);

/// Time without waits before the row that requests notifications is deleted.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of a statement. After a timeout, the connection is considered lost.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);

const RETRY_DELAY: Duration = Duration::from_millis(250);

impl Waiter {
    /// Starts a waiter on the default store of the pool's database. The waiter uses its own connection and runs as a task of the current
    /// tokio runtime.
    pub fn start(pool: &PgPool) -> Self {
        Self::start_on(pool, Store::default())
    }

    /// Starts a waiter like [`Waiter::start`], on another store.
    pub fn start_on(pool: &PgPool, store: Store) -> Self {
        let (jobs, job_added, watching) = (Mutex::default(), Notify::new(), AtomicUsize::new(0));
        let inner = Arc::new(WaiterState { pool: pool.clone(), store, jobs, job_added, watching });
        let stop = CancellationToken::new();
        tokio::spawn(run(Arc::clone(&inner), stop.clone()));
        Self { inner, _stop: Arc::new(stop.drop_guard()) }
    }

    pub(super) fn pool(self) -> PgPool {
        self.inner.pool.clone()
    }

    pub(super) fn subscribe(self, job: JobRef, watching: bool) -> Result<JobSubscription, WaitError> {
        let (job, store, waits_in) = (job.id(), job.store(), self.inner.store);
        if store != waits_in {
            return Err(WaitError::OtherStore { job, store: store.schema(), waiter: waits_in.schema() });
        }
        let mut seen = self.inner.lock().entry(job).or_insert_with(|| watch::Sender::new(None)).subscribe();
        seen.mark_changed();
        self.inner.watching.fetch_add(usize::from(watching), Relaxed);
        self.inner.job_added.notify_one();
        Ok(JobSubscription { waiter: self, seen, watching })
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("store", &self.inner.store).finish_non_exhaustive()
    }
}

/// Subscription to the snapshots of one job. A job without subscriptions is no longer polled.
pub(crate) struct JobSubscription {
    waiter: Waiter,
    seen: watch::Receiver<Option<SnapshotResult>>,
    watching: bool,
}

impl JobSubscription {
    /// Waits for the next snapshot that differs from the previous snapshot.
    pub(super) async fn next(&mut self) -> SnapshotResult {
        loop {
            self.seen.changed().await.map_err(|_| poller_stopped())?;
            if let Some(seen) = self.seen.borrow_and_update().clone() {
                return seen;
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

    /// Publishes a snapshot of a job if it differs from the last snapshot. Removes the job once it has finished.
    fn publish(&self, job: JobId, snapshot: JobSnapshot) {
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

    /// Reports an error to all subscriptions, and removes their jobs.
    fn fail(&self, error: &Arc<Error>) {
        for (_, seen) in self.lock().drain() {
            seen.send_replace(Some(Err(Arc::clone(error))));
        }
    }
}

async fn run(inner: Arc<WaiterState>, stop: CancellationToken) {
    let mut connection = WaiterConnection::new(&inner);
    let mut failing: Option<Instant> = None;
    loop {
        let jobs = inner.subscribed_jobs();
        if jobs.is_empty() {
            failing = None;
            tokio::select! {
                () = stop.cancelled() => break,
                () = inner.job_added.notified() => continue,
                () = tokio::time::sleep(IDLE_TIMEOUT), if connection.listener.is_some() => {}
            }
            connection.close().await;
            continue;
        }
        let began = Instant::now();
        let pause = match connection.poll(&inner, &jobs).await {
            Ok(()) => {
                failing = None;
                None
            }
            Err(error) => {
                connection.listener = None;
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
        let interval = inner.poll_interval(connection.announced_at.is_some());
        tokio::select! {
            () = stop.cancelled() => break,
            () = connection.notified() => {}
            () = inner.job_added.notified() => {}
            () = tokio::time::sleep(interval) => {}
        }
    }
    connection.close().await;
}

impl WaiterState {
    fn poll_interval(&self, is_listening: bool) -> Duration {
        match (self.watching.load(Relaxed), is_listening) {
            (1.., _) => WATCH_INTERVAL,
            (0, true) => NOTIFIED_INTERVAL,
            (0, false) => UNNOTIFIED_INTERVAL,
        }
    }
}

/// Delay before the waiter tries to listen again. The last attempt may have failed because a pooler had no free session.
const LISTEN_RETRY: Duration = Duration::from_secs(30);

/// Connection of a waiter. Listens for notifications, writes the row that requests notifications, and polls.
struct WaiterConnection {
    id: Uuid,
    pool: PgPool,
    /// Connection options of the pool at the last check.
    pool_options: Arc<PgConnectOptions>,
    store: Store,
    listener: Option<PgListener>,
    /// Whether the connection listens on the channel and receives notifications.
    is_listening: bool,
    /// Time the row that requests notifications was last written.
    announced_at: Option<Instant>,
    announce_tried_at: Option<Instant>,
    /// Whether the warning about missing notifications was logged.
    has_warned: bool,
    /// Time the waiter last found that it cannot listen.
    not_listening_since: Option<Instant>,
    /// Node that holds the store, if the store is distributed.
    node: ListenNode,
}

impl WaiterConnection {
    fn new(inner: &WaiterState) -> Self {
        Self {
            id: Uuid::new_v4(),
            pool: inner.pool.clone(),
            pool_options: inner.pool.connect_options(),
            store: inner.store,
            listener: None,
            is_listening: false,
            announced_at: None,
            announce_tried_at: None,
            has_warned: false,
            not_listening_since: None,
            node: ListenNode::default(),
        }
    }

    /// Connects if necessary, renews the row that requests notifications, and polls the given jobs.
    async fn poll(&mut self, inner: &WaiterState, jobs: &[JobId]) -> sqlx::Result<()> {
        with_timeout(self.listen()).await?;
        let listener = self.listener.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        for jobs in jobs.chunks(MAX_JOBS) {
            let mut missing: HashSet<JobId> = jobs.iter().copied().collect();
            for (job, snapshot) in with_timeout(poll_jobs(&mut *listener, self.store, jobs)).await? {
                missing.remove(&job);
                if snapshot.outcome == WaitOutcome::Truncated { inner.job_added.notify_one() } else { inner.publish(job, snapshot) }
            }
            for job in missing {
                inner.publish(job, JobSnapshot::not_found());
            }
        }
        Ok(())
    }

    /// Connects and listens if necessary, and renews the row that requests notifications.
    async fn listen(&mut self) -> sqlx::Result<()> {
        // If the pool now connects to a different host, notifications do not arrive on the existing connection.
        let place = |options: &PgConnectOptions| (options.get_host().to_owned(), options.get_port(), options.get_socket().cloned());
        let to = self.pool.connect_options();
        if !Arc::ptr_eq(&to, &self.pool_options) && place(&to) != place(&self.pool_options) {
            self.listener = None;
        }
        self.pool_options = to;
        if self.not_listening_since.is_some_and(|since| since.elapsed() >= LISTEN_RETRY) {
            (self.not_listening_since, self.listener) = (None, None);
        }
        if self.listener.is_none() {
            (self.announced_at, self.announce_tried_at) = (None, None);
            // The driver's listener requires a pool. The caller's pool may be exhausted, or busy closing an unresponsive connection.
            let options = (*self.pool_options).clone().application_name("queue waiter").disable_statement_logging();
            let ListenerConnection { mut listener, keeps_session } = if self.cannot_listen() {
                ListenerConnection::without_listening(options).await?
            } else {
                self.node.listen(options, self.store).await?
            };
            if !keeps_session && !self.cannot_listen() {
                self.not_listening_since = Some(Instant::now());
            }
            self.is_listening = match Channel::Finished.name(&mut listener, self.store).await {
                Ok(channel) if keeps_session => match listener.listen(&channel).await {
                    Ok(()) => true,
                    // A standby does not allow LISTEN.
                    Err(sqlx::Error::Database(_)) => false,
                    Err(error) => return Err(error),
                },
                // If the connection must not listen, or the role may not read the channel name, the waiter polls more often instead.
                Ok(_) | Err(sqlx::Error::Database(_)) => false,
                Err(error) => return Err(error),
            };
            if !keeps_session && !self.has_warned {
                self.has_warned = true;
                tracing::warn!("{NO_SESSION}");
            }
            self.listener = Some(listener);
        }
        let Some(listener) = &mut self.listener else { return Ok(()) };
        self.node.check(listener, self.store).await?;
        if self.is_listening && self.announce_tried_at.is_none_or(|at| at.elapsed() > RENEW_INTERVAL) {
            self.announce_tried_at = Some(Instant::now());
            let row = sqlx::query(self.store.sql(include_str!("../../sql/announce_waiter.sql"))).bind(self.id);
            self.announced_at = match row.execute(&mut *listener).await {
                Ok(_) => self.announce_tried_at,
                // A read-only login cannot write the row that requests notifications, so the waiter polls more often instead.
                Err(sqlx::Error::Database(_)) => None,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Returns whether listening is known to be impossible.
    fn cannot_listen(&self) -> bool {
        self.not_listening_since.is_some()
    }

    /// Waits until a notification arrives, or the connection is lost.
    async fn notified(&mut self) {
        let Some(listener) = &mut self.listener else { return std::future::pending().await };
        if listener.try_recv().await.is_err() {
            self.listener = None;
        }
    }

    /// Deletes the row that requests notifications, and closes the connection.
    async fn close(&mut self) {
        if let Some(mut listener) = self.listener.take().filter(|_| self.announced_at.is_some()) {
            let row = sqlx::query(self.store.sql(include_str!("../../sql/leave_waiter.sql"))).bind(self.id);
            // A row that cannot be deleted expires after a minute.
            let _ = timeout(Duration::from_secs(1), row.execute(&mut listener)).await;
        }
        self.announced_at = None;
    }
}

/// Limits the duration of a statement. A timeout is returned as an I/O error.
async fn with_timeout<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    timeout(STATEMENT_TIMEOUT, statement).await.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}
