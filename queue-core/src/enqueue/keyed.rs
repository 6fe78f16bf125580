//! One job by way of `queue.enqueue_with` or `queue.try_enqueue`: with an ordering or a uniqueness key, or into a queue that may be full.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    time::Duration,
};

use sqlx::{PgPool, Row as _};

use super::{
    JobHandle, encode, explain,
    terms::{Terms, terms_methods, unique_methods},
    unique_key_of,
};
use crate::{
    connect::IntoConnection,
    define::{Durability, Enqueued, JobId, JobType},
    error::Error,
    schema::Store,
    schema::{Connection, in_transaction},
};

const ENQUEUE: &str = include_str!("../../sql/enqueue_with.sql");
const TRY: &str = include_str!("../../sql/try_enqueue.sql");

/// What is sent, encoded once, however often it is sent.
pub(super) struct Parcel {
    store: Store,
    terms: Terms,
    payload: String,
    key: Option<String>,
    unique_key: Option<String>,
}

impl Parcel {
    pub(super) fn of<J: JobType>(job: &J, store: Store, terms: Terms) -> Result<Self, Error> {
        terms.check()?;
        let payload = encode(job)?;
        let (key, unique_key) = (terms.key_of(job)?, unique_key_of(job, &terms)?);
        Ok(Self { store, terms, payload, key, unique_key })
    }

    /// The handle; an error if the queue is full.
    pub(super) async fn send<J>(&self, on: &mut Connection<'_>) -> Result<JobHandle<J>, Error> {
        // Only the other statement knows of a queue that is full and no error.
        self.run(ENQUEUE, on).await?.ok_or(Error::Database(sqlx::Error::RowNotFound))
    }

    /// The handle; `None` if the queue is full.
    async fn try_send<J>(&self, on: &mut Connection<'_>) -> Result<Option<JobHandle<J>>, Error> {
        self.run(TRY, on).await
    }

    async fn run<J>(&self, statement: &'static str, on: &mut Connection<'_>) -> Result<Option<JobHandle<J>>, Error> {
        let Self { store, terms, payload, key, unique_key } = self;
        let relaxed = terms.durability == Durability::Relaxed
            && match on {
                Connection::Pool(_) => true,
                Connection::One(connection) => !in_transaction(connection).await?,
            };
        let options = terms.options(terms.run.options(), key.as_deref(), unique_key.as_deref());
        let query = sqlx::query(store.sql(statement)).bind(terms.job_type).bind(payload).bind(options.to_string()).bind(relaxed);
        let row = match on {
            Connection::Pool(pool) => query.fetch_one(*pool).await,
            Connection::One(connection) => query.fetch_one(&mut **connection).await,
        };
        let row = row.map_err(|error| explain(error, *store))?;
        let id: Option<JobId> = row.try_get(0)?;
        Ok(id.map(|id| JobHandle::enqueued(id, Enqueued::from_sql(row.get(1)))))
    }
}

/// As [`Enqueue`](super::Enqueue), but awaiting it gives `None` if the queue is full: nothing was enqueued, and a transaction of yours goes on.
///
/// ```no_run
/// # use queue_core::{Job, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Resize { photo: u64 }
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// match (Resize { photo: 7 }).try_enqueue(&pool).await? {
///     Some(job) => println!("enqueued {}", job.id()),
///     None => println!("come back later"),
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing is enqueued until this is awaited"]
pub struct TryEnqueue<'c, J> {
    job: J,
    on: Connection<'c>,
    store: Store,
    terms: Terms,
}

impl<'c, J: JobType> TryEnqueue<'c, J> {
    pub(crate) fn new(job: J, on: impl IntoConnection<'c>) -> Self {
        Self { job, on: on.into_connection(), store: Store::default(), terms: Terms::of::<J>() }
    }

    terms_methods!(self mut);
    unique_methods!(self);

    /// Into this store instead of the default one.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }
}

impl<'c, J: JobType> IntoFuture for TryEnqueue<'c, J> {
    type Output = Result<Option<JobHandle<J>>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { job, mut on, store, terms } = self;
            Parcel::of(&job, store, terms)?.try_send(&mut on).await
        })
    }
}

impl<J> fmt::Debug for TryEnqueue<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryEnqueue").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// The first wait of who found the queue full; each is twice the one before, up to the last.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LAST_WAIT: Duration = Duration::from_millis(250);

/// As [`Enqueue`](super::Enqueue), on a pool: awaiting it waits while the queue is full, asking again after 5 ms and at last every 250 ms.
///
/// Whoever asks first once there is room gets it: those who wait are not served in turn. Nothing is held while it waits; dropped, it has either
/// enqueued the job or not.
///
/// ```no_run
/// # use std::time::Duration;
/// # use queue_core::{Job, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Resize { photo: u64 }
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// Resize { photo: 7 }.enqueue_when_free(&pool, Duration::from_secs(30)).await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is enqueued until this is awaited"]
pub struct EnqueueWhenFree<'c, J> {
    job: J,
    pool: &'c PgPool,
    timeout: Duration,
    store: Store,
    terms: Terms,
}

impl<'c, J: JobType> EnqueueWhenFree<'c, J> {
    pub(crate) fn new(job: J, pool: &'c PgPool, timeout: Duration) -> Self {
        Self { job, pool, timeout, store: Store::default(), terms: Terms::of::<J>() }
    }

    terms_methods!(self mut);
    unique_methods!(self);

    /// Into this store instead of the default one.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }
}

impl<'c, J: JobType> IntoFuture for EnqueueWhenFree<'c, J> {
    type Output = Result<JobHandle<J>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { job, pool, timeout, store, terms } = self;
            let parcel = Parcel::of(&job, store, terms)?;
            drop(job);
            let began = tokio::time::Instant::now();
            let mut wait = FIRST_WAIT;
            loop {
                let on = &mut Connection::Pool(pool);
                let left = timeout.saturating_sub(began.elapsed());
                if left.is_zero() {
                    // The last time in the way that says how full it is.
                    return parcel.send(on).await;
                }
                if let Some(handle) = parcel.try_send(on).await? {
                    return Ok(handle);
                }
                tokio::time::sleep(wait.min(left)).await;
                wait = (wait * 2).min(LAST_WAIT);
            }
        })
    }
}

impl<J> fmt::Debug for EnqueueWhenFree<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueWhenFree").field("terms", &self.terms).finish_non_exhaustive()
    }
}
