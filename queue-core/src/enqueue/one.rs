//! Enqueue of a single job.
//!
//! The SQL function `queue.insert_job` is the fast path for a job without keys, metadata or expiry. `queue.enqueue_with` writes any other
//! job. `queue.try_enqueue` writes a job unless the queue is at its capacity.

use std::{
    borrow::Cow,
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    time::Duration,
};

use sqlx::{Postgres, Row as _, postgres::PgArguments, query::Query};
use tracing::Instrument as _;

use super::{
    JobHandle,
    hooks::call_hooks,
    options::{EnqueueOptions, enqueue_methods, option_methods},
    row::{EncodedJob, EnqueueRow},
    store_error,
};
use crate::{
    connect::{IntoConnection, JobRef},
    define::{Durability, EnqueueOutcome, JobId, JobType},
    error::Error,
    schema::{Connection, Store, in_transaction},
    trace,
};

/// Builder for an enqueue of one job. Created by [`Job::enqueue`](crate::Job::enqueue). Override options of the job type with the methods
/// below, then await the builder.
///
/// ```no_run
/// # use std::time::Duration;
/// # use queue_core::{job, Job, Priority};
/// # use serde::{Serialize, Deserialize};
/// #[job(send_only)]
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail { to: String }
///
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = pool.begin().await?;
/// let mail = SendEmail { to: "ada@example.org".into() }
///     .enqueue(&mut tx)
///     .after(Duration::from_secs(60))
///     .priority(Priority::EXPLICIT)
///     .await?;
/// tx.commit().await?;
/// println!("enqueued {}", mail.id());
/// # Ok(()) }
/// ```
///
/// `R` is the type of the result: a [`JobHandle`], or `Option<JobHandle>` after [`unless_at_capacity`](Self::unless_at_capacity).
#[must_use = "nothing is enqueued until this is awaited"]
pub struct Enqueue<'c, J, R = JobHandle<J>> {
    job: J,
    on: Connection<'c>,
    store: Store,
    durability: Option<Durability>,
    options: EnqueueOptions,
    /// Maximum time to wait for capacity; `None` if the enqueue does not wait.
    capacity_wait: Option<Duration>,
    returned: PhantomData<fn() -> R>,
}

/// First retry delay of an enqueue that waits for capacity. Each later delay is twice the previous delay, up to [`MAX_RETRY_DELAY`].
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(5);

/// Maximum retry delay of an enqueue that waits for capacity.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(250);

impl<'c, J: JobType> Enqueue<'c, J> {
    pub(super) fn new(job: J, on: impl IntoConnection<'c>) -> Self {
        let mut options = EnqueueOptions::for_type::<J>();
        let store = options.set_tenant(on.tenant()).unwrap_or_default();
        Self { job, on: on.into_connection(), store, durability: None, options, capacity_wait: None, returned: PhantomData }
    }

    /// Makes the enqueue return `None` if the queue is at its capacity. In this case nothing is enqueued, and your transaction is
    /// unchanged. Without this option, the enqueue returns [`Error::AtCapacity`], after which the transaction can only be rolled back.
    ///
    /// ```no_run
    /// # use queue_core::{Job, job};
    /// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Resize { photo: u64 }
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// match (Resize { photo: 7 }).enqueue(&pool).unless_at_capacity().await? {
    ///     Some(job) => println!("enqueued {}", job.id()),
    ///     None => println!("come back later"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn unless_at_capacity(self) -> Enqueue<'c, J, Option<JobHandle<J>>> {
        let Self { job, on, store, durability, options, capacity_wait, .. } = self;
        Enqueue { job, on, store, durability, options, capacity_wait, returned: PhantomData }
    }
}

impl<J: JobType, R> Enqueue<'_, J, R> {
    option_methods!((mut self) -> Self, self);
    enqueue_methods!();

    /// Makes the enqueue wait for up to `timeout` while the queue is at its capacity. The first retry is after 5 ms. Later retries follow
    /// at increasing intervals of up to 250 ms.
    ///
    /// Waiting producers are not served in order: available capacity goes to the first producer that retries. A waiting producer holds no
    /// locks. If the future is dropped, the job may or may not have been enqueued. Waiting is not allowed in a transaction
    /// ([`Error::WaitInTransaction`]), because locks of your transaction could block the transactions that finish jobs and free capacity.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use queue_core::{Job, job};
    /// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Resize { photo: u64 }
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// Resize { photo: 7 }.enqueue(&pool).wait_for_capacity(Duration::from_secs(30)).await?;
    /// # Ok(()) }
    /// ```
    pub fn wait_for_capacity(mut self, timeout: Duration) -> Self {
        self.capacity_wait = Some(timeout);
        self
    }

    fn options_mut(&mut self) -> &mut EnqueueOptions {
        &mut self.options
    }

    /// Enqueues the job and returns the handle to it. Returns `None` if the queue is at its capacity and `unless_at_capacity` is set.
    async fn send(mut self, unless_at_capacity: bool) -> Result<Option<JobHandle<J>>, Error> {
        call_hooks(&mut self.options);
        let span = trace::enqueue_span(Some(&self.options.queue), Some(self.options.job_type));
        self.options.add_trace(trace::current_context(&span).as_ref());
        let sent = self.write(unless_at_capacity).instrument(span.clone()).await;
        let new = sent.as_ref().map(|handle| handle.as_ref().filter(|handle| handle.outcome() == EnqueueOutcome::New).map(JobHandle::id));
        trace::record_enqueue(&span, new.as_ref().map(|new| new.as_ref().map(|id| id as &dyn fmt::Display)).map_err(|error| *error));
        sent
    }

    async fn write(self, unless_at_capacity: bool) -> Result<Option<JobHandle<J>>, Error> {
        let Self { job, mut on, store, durability, options, capacity_wait, .. } = self;
        options.check()?;
        let row = EnqueueRow::for_store(store, Cow::Owned(EncodedJob::encode(&job)?), &options, 0)?;
        drop(job);
        let relaxed = durability.unwrap_or(options.durability) == Durability::Relaxed;
        let inside = match &mut on {
            Connection::One(connection) if relaxed || capacity_wait.is_some() => in_transaction(connection).await?,
            Connection::Locked(connection) if relaxed || capacity_wait.is_some() => in_transaction(connection).await?,
            Connection::Pool(_) | Connection::One(_) | Connection::Locked(_) => false,
        };
        if inside && capacity_wait.is_some() {
            return Err(Error::WaitInTransaction);
        }
        let job = PreparedEnqueue { row, options, store, relaxed: relaxed && !inside };
        if let Some(timeout) = capacity_wait {
            let began = tokio::time::Instant::now();
            let mut pause = FIRST_RETRY_DELAY;
            while let Some(left) = timeout.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
                if let Some(handle) = job.send(&mut on, true).await? {
                    return Ok(Some(handle));
                }
                tokio::time::sleep(pause.min(left)).await;
                pause = (pause * 2).min(MAX_RETRY_DELAY);
            }
        }
        // This is the only call of `send`, or the last one after waiting for capacity. If the queue is at its capacity, `send` returns the
        // error `AtCapacity`, or `None` with `unless_at_capacity`.
        job.send(&mut on, unless_at_capacity).await
    }
}

/// Encoded job, which can be sent again if the queue was at its capacity.
struct PreparedEnqueue {
    row: EnqueueRow<'static>,
    options: EnqueueOptions,
    store: Store,
    /// Whether the commit can return before the WAL flush. Set only if the enqueue has its own transaction.
    relaxed: bool,
}

impl PreparedEnqueue {
    /// Enqueues the job and returns the handle to it. Returns `None` if the queue is at its capacity and `unless_at_capacity` is set.
    async fn send<J>(&self, on: &mut Connection<'_>, unless_at_capacity: bool) -> Result<Option<JobHandle<J>>, Error> {
        let options_json;
        let query = if self.row.is_plain() && !unless_at_capacity {
            self.plain_query()
        } else {
            options_json = self.row.options_json(&self.options)?;
            self.options_query(&options_json, unless_at_capacity)
        };
        let row = query.fetch_one(&mut *on.acquire().await?).await.map_err(|error| store_error(error, self.store))?;
        let id: Option<JobId> = row.try_get(0)?;
        // The fast path returns no outcome, because its job is always new.
        let outcome = if row.len() > 1 { EnqueueOutcome::from_sql(row.try_get(1)?) } else { EnqueueOutcome::New };
        Ok(id.map(|id| JobHandle::enqueued(JobRef::from_id(id).in_store(self.store), outcome)))
    }

    fn plain_query(&self) -> Query<'_, Postgres, PgArguments> {
        let Self { row, options, store, relaxed } = self;
        let statement = if *relaxed { include_str!("../../sql/enqueue_relaxed.sql") } else { include_str!("../../sql/enqueue.sql") };
        sqlx::query(store.sql(statement))
            .bind(options.stored_type())
            .bind(row.payload())
            .bind(&*options.queue)
            .bind(options.priority)
            .bind(options.max_attempts)
            .bind(options.run.at())
            .bind(options.run.after_ms())
    }

    fn options_query<'q>(&'q self, options_json: &'q str, unless_at_capacity: bool) -> Query<'q, Postgres, PgArguments> {
        let Self { row, options, store, relaxed } = self;
        let (with, unless) = (include_str!("../../sql/enqueue_with.sql"), include_str!("../../sql/try_enqueue.sql"));
        let statement = if unless_at_capacity { unless } else { with };
        sqlx::query(store.sql(statement)).bind(options.job_type).bind(row.payload()).bind(options_json).bind(relaxed)
    }
}

impl<'c, J: JobType> IntoFuture for Enqueue<'c, J> {
    type Output = Result<JobHandle<J>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        // Without `unless_at_capacity`, the statements report a queue at its capacity as an error, so `send` never returns `Ok(None)`.
        Box::pin(async move { self.send(false).await?.ok_or(Error::Database(sqlx::Error::RowNotFound)) })
    }
}

impl<'c, J: JobType> IntoFuture for Enqueue<'c, J, Option<JobHandle<J>>> {
    type Output = Result<Option<JobHandle<J>>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send(true))
    }
}

impl<J, R> fmt::Debug for Enqueue<'_, J, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue").field("options", &self.options).finish_non_exhaustive()
    }
}
