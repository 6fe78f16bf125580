//! One job about to be enqueued.
//!
//! A plain job goes by `queue.insert_job`, which is the fast way; any other by `queue.enqueue_with`, or by `queue.try_enqueue` if it may be refused.

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
    JobHandle, explain,
    hooks::call_hooks,
    options::{EnqueueOptions, enqueue_methods, option_methods},
    row::{Encoded, Row},
};
use crate::{
    connect::{IntoConnection, JobRef},
    define::{Durability, Enqueued, JobId, JobType},
    error::Error,
    schema::{Connection, Store, in_transaction},
    trace,
};

/// A job about to be enqueued. Say what differs from its type's options, then await it.
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
/// `R` is what awaiting it returns: a [`JobHandle`], or `Option<JobHandle>` after [`unless_at_capacity`](Self::unless_at_capacity).
#[must_use = "nothing is enqueued until this is awaited"]
pub struct Enqueue<'c, J, R = JobHandle<J>> {
    job: J,
    on: Connection<'c>,
    store: Store,
    durability: Option<Durability>,
    options: EnqueueOptions,
    /// How long to wait while the queue is at its capacity, if that is wanted.
    patience: Option<Duration>,
    returned: PhantomData<fn() -> R>,
}

/// The first pause of who waits for capacity; each is twice the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

impl<'c, J: JobType> Enqueue<'c, J> {
    pub(super) fn new(job: J, on: impl IntoConnection<'c>) -> Self {
        let mut options = EnqueueOptions::of::<J>();
        let store = options.place(on.tenant()).unwrap_or_default();
        Self { job, on: on.into_connection(), store, durability: None, options, patience: None, returned: PhantomData }
    }

    /// If the queue is at its capacity, enqueues nothing and returns `None`, and a transaction of yours is as it was. Without this, that is
    /// [`Error::AtCapacity`], after which the transaction can only be rolled back.
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
        let Self { job, on, store, durability, options, patience, .. } = self;
        Enqueue { job, on, store, durability, options, patience, returned: PhantomData }
    }
}

impl<J: JobType, R> Enqueue<'_, J, R> {
    option_methods!((mut self) -> Self, self);
    enqueue_methods!();

    /// While the queue is at its capacity, waits for up to this long: it asks again after 5 ms, and at last every 250 ms.
    ///
    /// Whoever asks first once there is capacity gets it: those who wait are not served in turn. Nothing is locked while it waits; dropped, it has
    /// either enqueued the job or not. Not in a transaction: that is refused, with
    /// [`Error::WaitInTransaction`], because it may hold up those that end waiting jobs.
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
        self.patience = Some(timeout);
        self
    }

    fn said(&mut self) -> &mut EnqueueOptions {
        &mut self.options
    }

    /// The handle; `None` if the queue is at its capacity, provided that this is no error.
    async fn send(mut self, unless_at_capacity: bool) -> Result<Option<JobHandle<J>>, Error> {
        call_hooks(&mut self.options);
        let span = trace::enqueue_span(Some(&self.options.queue), Some(self.options.job_type));
        self.options.carry(trace::current_context(&span).as_ref());
        let sent = self.write(unless_at_capacity).instrument(span.clone()).await;
        let new = sent.as_ref().map(|handle| handle.as_ref().filter(|handle| handle.outcome() == Enqueued::New).map(JobHandle::id));
        trace::record_enqueue(&span, new.as_ref().map(|new| new.as_ref().map(|id| id as &dyn fmt::Display)).map_err(|error| *error));
        sent
    }

    async fn write(self, unless_at_capacity: bool) -> Result<Option<JobHandle<J>>, Error> {
        let Self { job, mut on, store, durability, options, patience, .. } = self;
        options.check()?;
        let row = Row::to(store, Cow::Owned(Encoded::of(&job)?), &options, 0)?;
        drop(job);
        let relaxed = durability.unwrap_or(options.durability) == Durability::Relaxed;
        let inside = match &mut on {
            Connection::One(connection) if relaxed || patience.is_some() => in_transaction(connection).await?,
            _ => false,
        };
        if inside && patience.is_some() {
            return Err(Error::WaitInTransaction);
        }
        let job = Outgoing { row, options, store, relaxed: relaxed && !inside };
        if let Some(timeout) = patience {
            let began = tokio::time::Instant::now();
            let mut pause = FIRST_PAUSE;
            while let Some(left) = timeout.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
                if let Some(handle) = job.send(&mut on, true).await? {
                    return Ok(Some(handle));
                }
                tokio::time::sleep(pause.min(left)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        // When there was no capacity in time, this says how much there is.
        job.send(&mut on, unless_at_capacity).await
    }
}

/// A job, ready to be sent any number of times.
struct Outgoing {
    row: Row<'static>,
    options: EnqueueOptions,
    store: Store,
    /// Whether its commit need not wait for the disk; it is a transaction of its own then.
    relaxed: bool,
}

impl Outgoing {
    /// The handle; `None` if the queue is at its capacity, provided that this is no error.
    async fn send<J>(&self, on: &mut Connection<'_>, unless_at_capacity: bool) -> Result<Option<JobHandle<J>>, Error> {
        let carried;
        let query = if self.row.is_plain() && !unless_at_capacity {
            self.plain()
        } else {
            carried = self.row.carried(&self.options)?;
            self.with(&carried, unless_at_capacity)
        };
        let row = query.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, self.store))?;
        let id: Option<JobId> = row.try_get(0)?;
        // What goes the plain way is new.
        let outcome = if row.len() > 1 { Enqueued::from_sql(row.try_get(1)?) } else { Enqueued::New };
        Ok(id.map(|id| JobHandle::enqueued(JobRef::from_id(id).in_store(self.store), outcome)))
    }

    fn plain(&self) -> Query<'_, Postgres, PgArguments> {
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

    fn with<'q>(&'q self, carried: &'q str, unless_at_capacity: bool) -> Query<'q, Postgres, PgArguments> {
        let Self { row, options, store, relaxed } = self;
        let (with, unless) = (include_str!("../../sql/enqueue_with.sql"), include_str!("../../sql/try_enqueue.sql"));
        let statement = if unless_at_capacity { unless } else { with };
        sqlx::query(store.sql(statement)).bind(options.job_type).bind(row.payload()).bind(carried).bind(relaxed)
    }
}

impl<'c, J: JobType> IntoFuture for Enqueue<'c, J> {
    type Output = Result<JobHandle<J>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        // Without `unless_at_capacity`, the statements know of no queue at its capacity that is no error.
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
