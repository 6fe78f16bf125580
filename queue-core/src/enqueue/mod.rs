//! Enqueuing: builders that are awaited, over any kind of connection. One job here, many in `all` and `batch`, which `bulk` writes.
//!
//! All that one job takes is to check the payload and call the SQL function `queue.enqueue`, which other languages call too.

mod all;
mod batch;
mod bulk;
mod copy;
mod each;
mod insert;
mod job;
mod keyed;
mod terms;

use std::{
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
};

pub use self::{
    all::{EnqueueAll, EnqueueAllIds},
    batch::{Added, Batch},
    job::Job,
    keyed::{EnqueueWhenFree, TryEnqueue},
};
use self::{
    keyed::Parcel,
    terms::{Terms, terms_methods, unique_methods},
};
use crate::{
    connect::IntoConnection,
    define::{Durability, Enqueued, JobId, JobType},
    error::Error,
    payload::{self, PayloadError},
    schema::Store,
    schema::{Connection, in_transaction},
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
#[must_use = "nothing is enqueued until this is awaited"]
pub struct Enqueue<'c, J> {
    job: J,
    on: Connection<'c>,
    store: Store,
    terms: Terms,
}

impl<'c, J: JobType> Enqueue<'c, J> {
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

    /// Whether the commit of this enqueue waits for the disk, instead of what the type says; see [`Durability`] for what is risked.
    ///
    /// It counts where the enqueue is a transaction of its own: on a pool, or on a connection outside a transaction. In a transaction of
    /// yours it changes nothing, for that would be the durability of your other writes: say `set local synchronous_commit = off` there.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.terms.durability = durability;
        self
    }

    async fn send(self) -> Result<JobHandle<J>, Error> {
        let Self { job, mut on, store, terms } = self;
        if terms.unique.is_some() || terms.key_of(&job)?.is_some() {
            return Parcel::of(&job, store, terms)?.send(&mut on).await;
        }
        terms.check()?;
        let is_ours = match &mut on {
            Connection::One(connection) if terms.durability == Durability::Relaxed => !in_transaction(connection).await?,
            _ => true,
        };
        let statement = match terms.durability {
            Durability::Relaxed if is_ours => include_str!("../../sql/enqueue_relaxed.sql"),
            _ => include_str!("../../sql/enqueue.sql"),
        };
        let query = sqlx::query_scalar::<_, JobId>(store.sql(statement))
            .bind(terms.job_type)
            .bind(encode(&job)?)
            .bind(terms.queue)
            .bind(terms.priority)
            .bind(terms.max_attempts)
            .bind(terms.run.at())
            .bind(terms.run.after_ms());
        let id = match on {
            Connection::Pool(pool) => query.fetch_one(pool).await,
            Connection::One(connection) => query.fetch_one(connection).await,
        };
        id.map(JobHandle::from_id).map_err(|error| explain(error, store))
    }
}

impl<'c, J: JobType> IntoFuture for Enqueue<'c, J> {
    type Output = Result<JobHandle<J>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<J> fmt::Debug for Enqueue<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// A job that was enqueued, by its id and type. It exists once the transaction it was enqueued in has committed.
pub struct JobHandle<J> {
    id: JobId,
    outcome: Enqueued,
    job: PhantomData<fn() -> J>,
}

impl<J> JobHandle<J> {
    /// The handle of a job whose id came from elsewhere. It is not checked that such a job exists, or is a `J`.
    pub fn from_id(id: JobId) -> Self {
        Self::enqueued(id, Enqueued::New)
    }

    fn enqueued(id: JobId, outcome: Enqueued) -> Self {
        Self { id, outcome, job: PhantomData }
    }

    /// What came of the enqueue: a new job, unless it is unique and another held its key. Of a handle from an id, that is not known: it says new.
    pub fn outcome(&self) -> Enqueued {
        self.outcome
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.id
    }
}

impl<J> Clone for JobHandle<J> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<J> Copy for JobHandle<J> {}

impl<J> fmt::Debug for JobHandle<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobHandle({})", self.id)
    }
}

/// The payload's text, or what is wrong with it.
fn encode<J: JobType>(job: &J) -> Result<String, Error> {
    payload::encode(job, payload::DEFAULT_LIMIT).map_err(|source| Error::Payload { job_type: J::OPTIONS.name, source })
}

/// The uniqueness key, if the job has one: what was given, else what its fields make. To be asked for after its payload, which has its depth
/// and its numbers checked.
fn unique_key_of<J: JobType>(job: &J, terms: &Terms) -> Result<Option<String>, Error> {
    let Some(unique) = &terms.unique else { return Ok(None) };
    if let Some(key) = &unique.key {
        return Ok(Some(key.clone()));
    }
    let encode = |what| Error::Payload { job_type: J::OPTIONS.name, source: PayloadError::Encode(what) };
    match job.unique_key().into_text() {
        Some(text) => text.map(Some).map_err(encode),
        None => Err(Error::OutOfRange { what: "the uniqueness key", value: "none".to_owned(), range: "given with `unique(..)`" }),
    }
}

/// A full queue, as `queue.take_capacity` describes it in its DETAIL.
#[derive(serde::Deserialize)]
struct Full {
    queue: String,
    capacity: u64,
}

fn full(error: &sqlx::Error) -> Option<Full> {
    let detail = error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?.detail()?;
    serde_json::from_str(detail).ok()
}

/// A missing function or schema means that nobody migrated; everything else is the database's own error.
pub(crate) fn explain(error: sqlx::Error, store: Store) -> Error {
    match error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() {
        Some("42883" | "42P01" | "3F000") => Error::NotMigrated { schema: store.schema().to_owned() },
        Some("QCAPA") => match full(&error) {
            Some(Full { queue, capacity }) => Error::QueueFull { queue, capacity },
            None => Error::Database(error),
        },
        _ => Error::Database(error),
    }
}
