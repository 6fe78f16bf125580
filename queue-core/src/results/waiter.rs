//! Waiting for thousands of jobs over one connection: it listens there, and looks at all of them with one statement.
//!
//! The row that asks workers to notify is committed before the first look, and workers look for it after their commits; so of a job that
//! ends after our look we are told. If we are not, because a worker or a connection was lost, the next look unasked finds it.

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
use super::look::{JobSnapshot, PATIENCE, WaitOutcome, look, may_pass, nobody};
use super::node::Node;
use crate::{
    connect::JobRef,
    define::JobId,
    enqueue::explain,
    error::Error,
    schema::{Channel, Listening, NO_SESSION, Store},
};

/// Waits for any number of jobs over one connection of its own. For a process that waits for many, such as a web server: make one, clone it
/// wherever it is needed, and pass it where a pool would do: `handle.wait(&waiter)`, `handle.watch(&waiter)`.
///
/// While somebody waits, workers notify it, so that a result is there milliseconds after its commit; should a notification be lost, it is
/// found within a second. While nobody waits, it does nothing. It ends with its last clone.
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
    inner: Arc<Inner>,
    _stop: Arc<DropGuard>,
}

struct Inner {
    pool: PgPool,
    store: Store,
    jobs: Mutex<HashMap<JobId, watch::Sender<Option<Seen>>>>,
    /// Rung when a job is added.
    fresh: Notify,
    /// How many watch progress, of which nobody is notified.
    watching: AtomicUsize,
}

type Seen = Result<Arc<JobSnapshot>, Arc<Error>>;

/// The most jobs of one look.
const MOST: usize = 1000;

/// How often to look unasked: when workers notify, while progress is watched, and when the row that asks them to cannot be written.
const BELT: Duration = Duration::from_secs(1);
const WATCHING: Duration = Duration::from_millis(200);
const UNTOLD: Duration = Duration::from_millis(250);

/// The shortest time between two looks; never more than a third of the time is spent on them.
const GAP: Duration = Duration::from_millis(2);

/// The row that asks workers to notify lasts a minute.
const RENEW: Duration = Duration::from_secs(20);

/// It is taken away when nobody has waited for so long.
const LINGER: Duration = Duration::from_secs(2);

/// A statement that takes longer has lost its connection.
const LONGEST: Duration = Duration::from_secs(15);

/// After a failure.
const PAUSE: Duration = Duration::from_millis(250);

impl Waiter {
    /// A waiter on the default store of the database of this pool, beside its connections. Runs as a task of the current tokio runtime.
    pub fn start(pool: &PgPool) -> Self {
        Self::start_on(pool, Store::default())
    }

    /// As [`Waiter::start`], on another store.
    pub fn start_on(pool: &PgPool, store: Store) -> Self {
        let (jobs, fresh, watching) = (Mutex::default(), Notify::new(), AtomicUsize::new(0));
        let inner = Arc::new(Inner { pool: pool.clone(), store, jobs, fresh, watching });
        let stop = CancellationToken::new();
        tokio::spawn(run(Arc::clone(&inner), stop.clone()));
        Self { inner, _stop: Arc::new(stop.drop_guard()) }
    }

    pub(super) fn pool(self) -> PgPool {
        self.inner.pool.clone()
    }

    pub(super) fn follow(self, job: JobRef, watching: bool) -> Result<Follow, WaitError> {
        let (job, store, waits_in) = (job.id(), job.store(), self.inner.store);
        if store != waits_in {
            return Err(WaitError::OtherStore { job, store: store.schema(), waiter: waits_in.schema() });
        }
        let mut seen = self.inner.lock().entry(job).or_insert_with(|| watch::Sender::new(None)).subscribe();
        seen.mark_changed();
        self.inner.watching.fetch_add(usize::from(watching), Relaxed);
        self.inner.fresh.notify_one();
        Ok(Follow { waiter: self, seen, watching })
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("store", &self.inner.store).finish_non_exhaustive()
    }
}

/// One who waits for one job. Nothing has to be undone when it is dropped: the next look leaves out jobs that nobody follows.
pub(crate) struct Follow {
    waiter: Waiter,
    seen: watch::Receiver<Option<Seen>>,
    watching: bool,
}

impl Follow {
    /// The next snapshot that differs from the last one.
    pub(super) async fn next(&mut self) -> Seen {
        loop {
            self.seen.changed().await.map_err(|_| nobody())?;
            if let Some(seen) = self.seen.borrow_and_update().clone() {
                return seen;
            }
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.waiter.inner.watching.fetch_sub(usize::from(self.watching), Relaxed);
    }
}

impl Inner {
    /// A lock that a panic elsewhere left poisoned is as good as any: nothing is half-written under it.
    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, watch::Sender<Option<Seen>>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The jobs that somebody follows; the others are forgotten.
    fn followed(&self) -> Vec<JobId> {
        let mut jobs = self.lock();
        jobs.retain(|_, seen| seen.receiver_count() > 0);
        if jobs.is_empty() && jobs.capacity() > MOST {
            jobs.shrink_to_fit();
        }
        jobs.keys().copied().collect()
    }

    /// Tells those who follow `job`, if it is news; once it is over, there will be no more.
    fn tell(&self, job: JobId, snapshot: JobSnapshot) {
        let over = snapshot.progress.over.is_some() || snapshot == JobSnapshot::not_found();
        let mut jobs = self.lock();
        let Some(seen) = jobs.get(&job) else { return };
        seen.send_if_modified(|last| {
            let news = !matches!(last, Some(Ok(last)) if **last == snapshot);
            if news {
                *last = Some(Ok(Arc::new(snapshot)));
            }
            news
        });
        if over {
            jobs.remove(&job);
        }
    }

    /// Tells everybody that there is nothing to wait for.
    fn fail(&self, error: &Arc<Error>) {
        for (_, seen) in self.lock().drain() {
            seen.send_replace(Some(Err(Arc::clone(error))));
        }
    }
}

async fn run(inner: Arc<Inner>, stop: CancellationToken) {
    let mut connection = WaiterConnection::new(&inner);
    let mut failing: Option<Instant> = None;
    loop {
        let jobs = inner.followed();
        if jobs.is_empty() {
            failing = None;
            tokio::select! {
                () = stop.cancelled() => break,
                () = inner.fresh.notified() => continue,
                () = tokio::time::sleep(LINGER), if connection.listener.is_some() => {}
            }
            connection.leave().await;
            continue;
        }
        let began = Instant::now();
        let pause = match connection.look(&inner, &jobs).await {
            Ok(()) => {
                failing = None;
                None
            }
            Err(error) => {
                connection.listener = None;
                if !may_pass(&error) || failing.get_or_insert(began).elapsed() > PATIENCE {
                    inner.fail(&Arc::new(explain(error, inner.store)));
                }
                Some(PAUSE)
            }
        };
        let pause = pause.unwrap_or_else(|| GAP.max(2 * began.elapsed()));
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
        let belt = inner.belt(connection.announced.is_some());
        tokio::select! {
            () = stop.cancelled() => break,
            () = connection.notified() => {}
            () = inner.fresh.notified() => {}
            () = tokio::time::sleep(belt) => {}
        }
    }
    connection.leave().await;
}

impl Inner {
    fn belt(&self, told: bool) -> Duration {
        match (self.watching.load(Relaxed), told) {
            (1.., _) => WATCHING,
            (0, true) => BELT,
            (0, false) => UNTOLD,
        }
    }
}

/// Whether anything can be listened for is looked at again after this time: a pooler may have had no session to spare.
const DEAF: Duration = Duration::from_secs(30);

/// The connection of a waiter: it listens, announces itself, and looks.
struct WaiterConnection {
    id: Uuid,
    pool: PgPool,
    /// Where that led when it was last connected.
    to: Arc<PgConnectOptions>,
    store: Store,
    listener: Option<PgListener>,
    /// Whether it may know the channel.
    told: bool,
    /// When the row that asks workers to notify was last written.
    announced: Option<Instant>,
    tried: Option<Instant>,
    /// That nothing is listened for.
    has_said: bool,
    /// When it was found out that nothing can be.
    deaf: Option<Instant>,
    /// Where a distributed store is.
    node: Node,
}

impl WaiterConnection {
    fn new(inner: &Inner) -> Self {
        Self {
            id: Uuid::new_v4(),
            pool: inner.pool.clone(),
            to: inner.pool.connect_options(),
            store: inner.store,
            listener: None,
            told: false,
            announced: None,
            tried: None,
            has_said: false,
            deaf: None,
            node: Node::default(),
        }
    }

    /// Looks at all of these jobs, announced first.
    async fn look(&mut self, inner: &Inner, jobs: &[JobId]) -> sqlx::Result<()> {
        bounded(self.listen()).await?;
        let listener = self.listener.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        for jobs in jobs.chunks(MOST) {
            let mut missing: HashSet<JobId> = jobs.iter().copied().collect();
            for (job, snapshot) in bounded(look(&mut *listener, self.store, jobs)).await? {
                missing.remove(&job);
                if snapshot.outcome == WaitOutcome::Later { inner.fresh.notify_one() } else { inner.tell(job, snapshot) }
            }
            for job in missing {
                inner.tell(job, JobSnapshot::not_found());
            }
        }
        Ok(())
    }

    /// Listens, and has the row that asks to be notified.
    async fn listen(&mut self) -> sqlx::Result<()> {
        // The pool may lead to another host by now, and nobody would notify on this one.
        let place = |options: &PgConnectOptions| (options.get_host().to_owned(), options.get_port(), options.get_socket().cloned());
        let to = self.pool.connect_options();
        if !Arc::ptr_eq(&to, &self.to) && place(&to) != place(&self.to) {
            self.listener = None;
        }
        self.to = to;
        if self.deaf.is_some_and(|since| since.elapsed() >= DEAF) {
            (self.deaf, self.listener) = (None, None);
        }
        if self.listener.is_none() {
            (self.announced, self.tried) = (None, None);
            // The driver's listener wants a pool. The user's may be exhausted, and one of ours may still be busy with a listener that was
            // dropped, which says goodbye to a connection that may have fallen silent.
            let options = (*self.to).clone().application_name("queue waiter").disable_statement_logging();
            let Listening { mut listener, keeps_session } =
                if self.is_deaf() { Listening::deaf(options).await? } else { self.node.listen(options, self.store).await? };
            if !keeps_session && !self.is_deaf() {
                self.deaf = Some(Instant::now());
            }
            self.told = match Channel::Over.name(&mut listener, self.store).await {
                Ok(channel) if keeps_session => match listener.listen(&channel).await {
                    Ok(()) => true,
                    // On a standby nobody listens.
                    Err(sqlx::Error::Database(_)) => false,
                    Err(error) => return Err(error),
                },
                // Who may not listen, or not know to what, looks more often instead.
                Ok(_) | Err(sqlx::Error::Database(_)) => false,
                Err(error) => return Err(error),
            };
            if !keeps_session && !self.has_said {
                self.has_said = true;
                tracing::warn!("{NO_SESSION}");
            }
            self.listener = Some(listener);
        }
        let Some(listener) = &mut self.listener else { return Ok(()) };
        self.node.check(listener, self.store).await?;
        if self.told && self.tried.is_none_or(|at| at.elapsed() > RENEW) {
            self.tried = Some(Instant::now());
            let row = sqlx::query(self.store.sql(include_str!("../../sql/announce_waiter.sql"))).bind(self.id);
            self.announced = match row.execute(&mut *listener).await {
                Ok(_) => self.tried,
                // So does who may only read.
                Err(sqlx::Error::Database(_)) => None,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Whether nothing can be listened for, as far as is known.
    fn is_deaf(&self) -> bool {
        self.deaf.is_some()
    }

    /// Until a notification comes, or the connection is lost.
    async fn notified(&mut self) {
        let Some(listener) = &mut self.listener else { return std::future::pending().await };
        if listener.try_recv().await.is_err() {
            self.listener = None;
        }
    }

    /// Takes the row away, and closes the connection.
    async fn leave(&mut self) {
        if let Some(mut listener) = self.listener.take().filter(|_| self.announced.is_some()) {
            let row = sqlx::query(self.store.sql(include_str!("../../sql/leave_waiter.sql"))).bind(self.id);
            // If it stays, it expires.
            let _ = timeout(Duration::from_secs(1), row.execute(&mut listener)).await;
        }
        self.announced = None;
    }
}

/// As a statement that fails.
async fn bounded<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    timeout(LONGEST, statement).await.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}
