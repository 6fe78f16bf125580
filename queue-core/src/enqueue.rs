//! Enqueuing one job: a builder that is awaited, over any kind of connection.
//!
//! All it does is check the payload and call the SQL function `queue.enqueue`, which other languages call too.

use std::{
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
    time::Duration,
};

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool, Postgres, Transaction, pool::PoolConnection};

use crate::{
    error::Error,
    job::Job,
    payload,
    record::JobId,
    store::{Store, check_name},
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
    queue: Option<String>,
    priority: i16,
    max_attempts: i16,
    run: Run,
}

/// When a job may first run.
enum Run {
    Now,
    After(Duration),
    At(DateTime<Utc>),
}

impl<'c, J: Job> Enqueue<'c, J> {
    pub(crate) fn new(job: J, on: impl IntoConnection<'c>) -> Self {
        Self {
            job,
            on: on.into_connection(),
            store: Store::default(),
            queue: None,
            priority: J::OPTIONS.priority,
            max_attempts: J::OPTIONS.max_attempts,
            run: Run::Now,
        }
    }

    /// Not before this long from now, by the database's clock. At most 3,000 years.
    pub fn after(mut self, wait: Duration) -> Self {
        self.run = Run::After(wait);
        self
    }

    /// Not before this time, which may have passed already. From 1970 to 9999.
    pub fn at(mut self, time: DateTime<Utc>) -> Self {
        self.run = Run::At(time);
        self
    }

    /// With this priority instead of its type's; higher runs first.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// Into this queue instead of its type's. A worker that serves only named queues must name it.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// With this many attempts instead of its type's; at least 1.
    pub fn max_attempts(mut self, max_attempts: i16) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Into this store instead of the default one.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    async fn send(self) -> Result<JobHandle<J>, Error> {
        let queue = self.queue.as_deref().unwrap_or(J::OPTIONS.queue);
        check_name("queue name", queue)?;
        check_name("job type name", J::OPTIONS.name)?;
        if self.max_attempts < 1 {
            return Err(Error::OutOfRange { what: "max_attempts", value: self.max_attempts.to_string(), range: "1 to 32767" });
        }
        let (at, after_ms) = self.run.bounds()?;
        let payload = payload::encode(&self.job, payload::DEFAULT_LIMIT)
            .map_err(|source| Error::Payload { job_type: J::OPTIONS.name, source })?;
        let query = sqlx::query_scalar::<_, JobId>(self.store.sql(include_str!("../sql/enqueue.sql")))
            .bind(J::OPTIONS.name)
            .bind(payload)
            .bind(queue)
            .bind(self.priority)
            .bind(self.max_attempts)
            .bind(at)
            .bind(after_ms);
        let id = match self.on {
            Connection::Pool(pool) => query.fetch_one(pool).await,
            Connection::One(connection) => query.fetch_one(connection).await,
        };
        id.map(JobHandle::from_id).map_err(|error| explain(error, self.store))
    }
}

impl Run {
    /// The time and the wait in milliseconds, checked against what the database can hold.
    fn bounds(&self) -> Result<(Option<DateTime<Utc>>, Option<f64>), Error> {
        const EARLIEST: i64 = 0;
        const LATEST: i64 = 253_402_300_799; // the last second of 9999
        const FARTHEST: u64 = 94_608_000_000; // 3,000 years, in seconds
        let out = |value: String| Error::OutOfRange { what: "the time to run at", value, range: "within the years 1970 to 9999" };
        match self {
            Self::Now => Ok((None, None)),
            Self::At(time) if (EARLIEST..=LATEST).contains(&time.timestamp()) => Ok((Some(*time), None)),
            Self::At(time) => Err(out(time.to_string())),
            Self::After(wait) if wait.as_secs() <= FARTHEST => Ok((None, Some(wait.as_secs_f64() * 1000.0))),
            Self::After(wait) => Err(out(format!("{} seconds from now", wait.as_secs()))),
        }
    }
}

impl<'c, J: Job> IntoFuture for Enqueue<'c, J> {
    type Output = Result<JobHandle<J>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<J> fmt::Debug for Enqueue<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue").field("queue", &self.queue).field("priority", &self.priority).finish_non_exhaustive()
    }
}

/// A job that was enqueued, by its id and type. It exists once the transaction it was enqueued in has committed.
pub struct JobHandle<J> {
    id: JobId,
    job: PhantomData<fn() -> J>,
}

impl<J> JobHandle<J> {
    /// The handle of a job whose id came from elsewhere. It is not checked that such a job exists, or is a `J`.
    pub fn from_id(id: JobId) -> Self {
        Self { id, job: PhantomData }
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

/// What a job can be enqueued on: `&pool`, `&mut connection`, `&mut transaction`, or a connection borrowed from a pool.
///
/// ```compile_fail
/// # use queue_core::{job, Job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
/// # async fn example(tx: sqlx::Transaction<'_, sqlx::Postgres>) {
/// Tick.enqueue(tx).await; // `&mut tx`
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "a job cannot be enqueued on `{Self}`",
    label = "give `&pool`, `&mut connection` or `&mut transaction`",
    note = "a transaction is lent, not given away: `.enqueue(&mut tx)`"
)]
pub trait IntoConnection<'c>: sealed::Sealed {
    #[doc(hidden)]
    fn into_connection(self) -> Connection<'c>;
}

/// A pool, or one connection of whatever origin.
#[doc(hidden)]
#[derive(Debug)]
pub enum Connection<'c> {
    Pool(&'c PgPool),
    One(&'c mut PgConnection),
}

impl<'c> IntoConnection<'c> for &'c PgPool {
    fn into_connection(self) -> Connection<'c> {
        Connection::Pool(self)
    }
}

impl<'c> IntoConnection<'c> for &'c mut PgConnection {
    fn into_connection(self) -> Connection<'c> {
        Connection::One(self)
    }
}

impl<'c> IntoConnection<'c> for &'c mut Transaction<'_, Postgres> {
    fn into_connection(self) -> Connection<'c> {
        Connection::One(self)
    }
}

impl<'c> IntoConnection<'c> for &'c mut PoolConnection<Postgres> {
    fn into_connection(self) -> Connection<'c> {
        Connection::One(self)
    }
}

mod sealed {
    use super::{PgConnection, PgPool, PoolConnection, Postgres, Transaction};

    pub trait Sealed {}
    impl Sealed for &PgPool {}
    impl Sealed for &mut PgConnection {}
    impl Sealed for &mut Transaction<'_, Postgres> {}
    impl Sealed for &mut PoolConnection<Postgres> {}
}

/// A missing function or schema means that nobody migrated; everything else is the database's own error.
fn explain(error: sqlx::Error, store: Store) -> Error {
    match error.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() {
        Some("42883" | "42P01" | "3F000") => Error::NotMigrated { schema: store.schema().to_owned() },
        _ => Error::Database(error),
    }
}
