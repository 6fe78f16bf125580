//! Handle to a store.

use std::{fmt, future::Future};

use sqlx::{PgConnection, PgPool};
use tokio::sync::{Mutex, MutexGuard};

use super::{
    error::WaitError,
    waiter::{JobSubscription, SharedWaiter},
};
use crate::{
    connect::JobRef,
    define::JobId,
    schema::{Connection, SessionConnection, Store},
};

/// Handle to a store, for queries and operations on its jobs, queues, limits and workers. Cheap to clone.
///
/// [`Queue::new`] creates a handle on a pool. [`Queue::on`] creates a handle on a connection, for operations in your own transaction. Both
/// have the same methods, which the module [`operate`](crate::operate) describes. Keep the handle in a variable: [`Queue::job`] and
/// [`Queue::jobs`] borrow it.
///
/// A handle on a pool can also wait for jobs, with [`QueueJob::wait`] and [`QueueJob::watch`]. Its clones share one connection for all
/// waits, so create one handle per process and clone it. The connection does not belong to the pool. It is opened with the pool's connect
/// options, by a task on the tokio runtime in which the first wait runs. See the module [`wait`](crate::wait).
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{JobState, Queue};
///
/// let queue = Queue::new(&pool);
/// queue.pause("mail").await?;
/// for job in queue.jobs().state(JobState::Dead).job_type("send_email").list().await?.jobs {
///     println!("{}: {:?}", job.id, job.error);
/// }
///
/// let mut tx = pool.begin().await?;
/// sqlx::query("delete from tenants where name = 'acme'").execute(&mut *tx).await?;
/// Queue::on(&mut tx).jobs().meta("tenant", "acme").cancel().await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing by itself"]
pub struct Queue<C = PgPool> {
    on: C,
    pub(crate) store: Store,
    /// Pool set with [`Queue::direct`], whose connect options the waiter uses. If `None`, the waiter uses the connect options of the pool
    /// in `on`.
    direct: Option<PgPool>,
    waiter: SharedWaiter,
}

/// Connection of a [`Queue`]: a pool, or one connection ([`OnConnection`]).
pub trait QueueConnection: sealed::Sealed + Send + Sync {
    #[doc(hidden)]
    fn lend(&self) -> impl Future<Output = Connection<'_>> + Send;
}

/// Connection borrowed by [`Queue::on`]. Concurrent calls on the same handle run one after another.
pub struct OnConnection<'c>(Mutex<&'c mut PgConnection>);

impl Queue {
    /// Creates a handle to the default store. Each operation acquires a connection from the pool.
    pub fn new(pool: &PgPool) -> Self {
        Self { on: pool.clone(), store: Store::default(), direct: None, waiter: SharedWaiter::default() }
    }

    /// Sets a pool that connects directly to the server. The connection that waits for jobs uses the connect options of this pool. Set this
    /// pool if the handle's own pool connects through a pooler in transaction mode, where no notifications arrive. Without a direct pool,
    /// such a handle polls jobs every 250 ms, and logs a warning once.
    pub fn direct(self, pool: &PgPool) -> Self {
        Self { direct: Some(pool.clone()), waiter: SharedWaiter::default(), ..self }
    }

    /// Returns the handle's pool, for example to enqueue jobs.
    pub fn pool(&self) -> &PgPool {
        &self.on
    }

    /// Subscribes to the snapshots of a job. The first call starts the handle's waiter as a task of the current tokio runtime.
    pub(super) fn subscribe(&self, job: JobRef, watching: bool) -> Result<JobSubscription, WaitError> {
        if job.store() != self.store {
            return Err(WaitError::OtherStore { job: job.id(), store: job.store().schema(), handle: self.store.schema() });
        }
        self.waiter.subscribe(self.direct.as_ref().unwrap_or(&self.on), job, watching).ok_or_else(WaitError::waiter_ended)
    }
}

impl<'c> Queue<OnConnection<'c>> {
    /// Creates a handle to the default store that uses a connection: `&mut connection` or `&mut tx`. If the connection has an open
    /// transaction, all changes are part of that transaction. For another store, call [`store`](Self::store) as well.
    pub fn on(connection: &'c mut PgConnection) -> Self {
        let on = OnConnection(Mutex::new(connection));
        Self { on, store: Store::default(), direct: None, waiter: SharedWaiter::default() }
    }
}

impl<C> Queue<C> {
    /// Sets the store. Default: the schema `queue`.
    pub fn store(self, store: Store) -> Self {
        if store == self.store {
            return self;
        }
        Self { store, waiter: SharedWaiter::default(), ..self }
    }

    /// Returns the operations on one job. Does not check that the job exists.
    pub fn job(&self, id: JobId) -> QueueJob<'_, C> {
        QueueJob { queue: self, id }
    }
}

impl<C: QueueConnection> Queue<C> {
    pub(crate) async fn lend(&self) -> Connection<'_> {
        self.on.lend().await
    }

    /// Returns the handle's connection, or a connection acquired from its pool.
    pub(crate) async fn connection(&self) -> sqlx::Result<SessionConnection<'_>> {
        self.lend().await.into_session().await
    }
}

/// Operations on one job of any type. Created by [`Queue::job`].
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, id: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// let queue = Queue::new(&pool);
/// println!("{}", queue.job(id).why().await?.first().message);
/// queue.job(id).cancel().await?;
/// # Ok(()) }
/// ```
#[must_use = "a handle does nothing by itself"]
pub struct QueueJob<'q, C = PgPool> {
    pub(crate) queue: &'q Queue<C>,
    pub(crate) id: JobId,
}

impl<C> Clone for QueueJob<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for QueueJob<'_, C> {}

impl<C> QueueJob<'_, C> {
    pub(crate) fn job_ref(&self) -> JobRef {
        JobRef::from_id(self.id).in_store(self.queue.store)
    }
}

impl QueueConnection for PgPool {
    async fn lend(&self) -> Connection<'_> {
        Connection::Pool(self)
    }
}

impl QueueConnection for OnConnection<'_> {
    async fn lend(&self) -> Connection<'_> {
        Connection::Locked(MutexGuard::map(self.0.lock().await, |connection| &mut **connection))
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for sqlx::PgPool {}
    impl Sealed for super::OnConnection<'_> {}
}

impl<C> fmt::Debug for Queue<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({})", self.store.schema())
    }
}

impl<C> fmt::Debug for QueueJob<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueJob({} in {})", self.id, self.queue.store.schema())
    }
}

impl fmt::Debug for OnConnection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnConnection")
    }
}
