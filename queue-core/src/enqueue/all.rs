//! Enqueuing many jobs of one type from an iterator.

use std::{
    borrow::Cow,
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
};

use super::{
    JobHandle,
    bulk::{Row, Written, write_all},
    encode,
    terms::{Terms, terms_methods},
    unique_key_of,
};
use crate::{
    connect::IntoConnection,
    define::{Durability, Enqueued, JobType},
    error::Error,
    schema::Connection,
    schema::Store,
};

/// Jobs of one type about to be enqueued. Say what differs from the type's options, then await it: it returns how many there were; of a type
/// that is unique, how many are new. Such jobs are written one by one, at a tenth of the speed.
///
/// On `&pool` all happens in one transaction of its own, and large sets travel by COPY. On a connection outside a transaction one is
/// begun likewise. In a transaction of yours the jobs exist if and only if that commits; after an error, or when the future was dropped
/// before it was done, roll that back: some of the jobs may have been written to it.
///
/// ```no_run
/// # use queue_core::{job, Job, Priority};
/// # use serde::{Serialize, Deserialize};
/// #[job(send_only)]
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail { to: String }
///
/// # async fn example(pool: sqlx::PgPool, members: Vec<String>) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = pool.begin().await?;
/// let mails = members.into_iter().map(|to| SendEmail { to });
/// let count = SendEmail::enqueue_all(mails, &mut tx).priority(Priority::BACKFILL).await?;
/// tx.commit().await?;
/// println!("enqueued {count} mails");
/// # Ok(()) }
/// ```
#[must_use = "nothing is enqueued until this is awaited"]
pub struct EnqueueAll<'c, J> {
    jobs: Box<dyn Iterator<Item = J> + Send + 'c>,
    on: Connection<'c>,
    store: Store,
    terms: Terms,
}

impl<'c, J: JobType> EnqueueAll<'c, J> {
    pub(crate) fn new(jobs: impl Iterator<Item = J> + Send + 'c, on: impl IntoConnection<'c>) -> Self {
        Self { jobs: Box::new(jobs), on: on.into_connection(), store: Store::default(), terms: Terms::of::<J>() }
    }

    terms_methods!(self mut);

    /// Into this store instead of the default one.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Whether the commit of these jobs waits for the disk, instead of what the type says; see [`Durability`] for what is risked.
    ///
    /// It counts where this is a transaction of its own: on a pool, or on a connection outside a transaction. In a transaction of
    /// yours it changes nothing, for that would be the durability of your other writes: say `set local synchronous_commit = off` there.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.terms.durability = durability;
        self
    }

    /// Returns a handle for each job, in the order of the iterator, instead of their number. Takes 24 bytes of memory a job.
    ///
    /// ```no_run
    /// # use queue_core::{job, Job, JobHandle};
    /// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// let ticks: Vec<JobHandle<Tick>> = Tick::enqueue_all([Tick, Tick], &pool).returning_ids().await?;
    /// # Ok(()) }
    /// ```
    pub fn returning_ids(self) -> EnqueueAllIds<'c, J> {
        EnqueueAllIds { all: self }
    }

    async fn send(self, ids_wanted: bool) -> Result<Written, Error> {
        let Self { jobs, on, store, terms } = self;
        terms.check()?;
        let own = terms.clone();
        let row = move |job: J| {
            let payload = Cow::Owned(encode(&job)?);
            Ok(Row { payload, key: own.key_of(&job)?.map(Cow::Owned), unique_key: unique_key_of(&job, &own)?, terms: 0 })
        };
        let rows = jobs.enumerate().map(move |(index, job)| row(job).map_err(|error| Error::OneOfMany { index, source: Box::new(error) }));
        let durability = terms.durability;
        write_all(on, store, durability, &[terms], Box::new(rows.fuse()), ids_wanted).await
    }
}

impl<'c, J: JobType> IntoFuture for EnqueueAll<'c, J> {
    type Output = Result<u64, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.send(false).await?.new_jobs()) })
    }
}

impl<J> fmt::Debug for EnqueueAll<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueAll").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// An [`EnqueueAll`] that returns a handle for each job; see [`EnqueueAll::returning_ids`].
#[must_use = "nothing is enqueued until this is awaited"]
#[derive(Debug)]
pub struct EnqueueAllIds<'c, J> {
    all: EnqueueAll<'c, J>,
}

impl<'c, J: JobType> IntoFuture for EnqueueAllIds<'c, J> {
    type Output = Result<Vec<JobHandle<J>>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let written = self.all.send(true).await?;
            let outcomes = written.outcomes.into_iter().chain(std::iter::repeat(Enqueued::New));
            Ok(written.ids.unwrap_or_default().into_iter().zip(outcomes).map(|(id, outcome)| JobHandle::enqueued(id, outcome)).collect())
        })
    }
}
