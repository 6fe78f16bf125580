//! Bulk enqueue from an iterator, for jobs of one type.

use std::{
    borrow::Cow,
    fmt,
    future::{Future, IntoFuture},
    marker::PhantomData,
    pin::Pin,
};

use tracing::Instrument as _;

use super::{
    JobHandle,
    bulk::write_all,
    hooks::call_hooks,
    options::{EnqueueOptions, enqueue_methods, option_methods},
    places::BulkResult,
    row::{EncodedJob, EnqueueRow},
};
use crate::{
    connect::{IntoConnection, JobRef},
    define::{Durability, EnqueueOutcome, JobType},
    error::Error,
    schema::{Connection, Store},
    trace,
};

/// Builder for an enqueue of many jobs of one type. Created by [`Job::enqueue_all`](crate::Job::enqueue_all).
///
/// Override options of the job type with the methods below, then await the builder. The result is the number of jobs, or for a unique type
/// the number of new jobs. Jobs of a unique type are enqueued one by one, which is ten times slower than for other types.
///
/// On a pool or on a connection outside a transaction, all jobs are written in one transaction. On a pool, large sets are sent by `COPY`.
/// In your transaction, the jobs exist if and only if the transaction commits. Roll your transaction back after an error, or if the future
/// is dropped before it completes, because the transaction may contain some of the jobs.
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
///
/// `R` is the type of the result: the number of jobs, or a handle for each job after [`returning_ids`](Self::returning_ids).
#[must_use = "nothing is enqueued until this is awaited"]
pub struct EnqueueAll<'c, J, R = u64> {
    jobs: Box<dyn Iterator<Item = J> + Send + 'c>,
    on: Connection<'c>,
    store: Store,
    durability: Option<Durability>,
    options: EnqueueOptions,
    returned: PhantomData<fn() -> R>,
}

impl<'c, J: JobType> EnqueueAll<'c, J> {
    pub(super) fn new(jobs: impl Iterator<Item = J> + Send + 'c, on: impl IntoConnection<'c>) -> Self {
        let mut options = EnqueueOptions::for_type::<J>();
        let store = options.set_tenant(on.tenant()).unwrap_or_default();
        Self { jobs: Box::new(jobs), on: on.into_connection(), store, durability: None, options, returned: PhantomData }
    }

    /// Makes the enqueue return a handle for each job, in the order of the iterator, instead of the number of jobs. Uses 32 bytes of memory
    /// per job.
    ///
    /// ```no_run
    /// # use queue_core::{job, Job, JobHandle};
    /// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// let ticks: Vec<JobHandle<Tick>> = Tick::enqueue_all([Tick, Tick], &pool).returning_ids().await?;
    /// # Ok(()) }
    /// ```
    pub fn returning_ids(self) -> EnqueueAll<'c, J, Vec<JobHandle<J>>> {
        let Self { jobs, on, store, durability, options, .. } = self;
        EnqueueAll { jobs, on, store, durability, options, returned: PhantomData }
    }
}

impl<J: JobType, R> EnqueueAll<'_, J, R> {
    option_methods!((mut self) -> Self, self);
    enqueue_methods!();

    fn options_mut(&mut self) -> &mut EnqueueOptions {
        &mut self.options
    }

    async fn send(mut self, returns_ids: bool) -> Result<BulkResult, Error> {
        call_hooks(&mut self.options);
        let span = trace::enqueue_span(Some(&self.options.queue), Some(self.options.job_type));
        self.options.add_trace(trace::current_context(&span).as_ref());
        let sent = self.write(returns_ids).instrument(span.clone()).await;
        trace::record_bulk_enqueue(&span, sent.as_ref().map(BulkResult::new_jobs));
        sent
    }

    async fn write(self, returns_ids: bool) -> Result<BulkResult, Error> {
        let Self { jobs, on, store, durability, options, .. } = self;
        options.check()?;
        let row = |(index, job): (usize, J)| {
            let row = EncodedJob::encode(&job).and_then(|job| EnqueueRow::for_store(store, Cow::Owned(job), &options, 0));
            row.map_err(|error| Error::OneOfMany { index, source: Box::new(error) })
        };
        let rows = Box::new(jobs.enumerate().map(row).fuse());
        write_all(on, store, durability, std::slice::from_ref(&options), rows, returns_ids).await
    }
}

impl<'c, J: JobType> IntoFuture for EnqueueAll<'c, J> {
    type Output = Result<u64, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.send(false).await?.new_jobs()) })
    }
}

impl<'c, J: JobType> IntoFuture for EnqueueAll<'c, J, Vec<JobHandle<J>>> {
    type Output = Result<Vec<JobHandle<J>>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let store = self.store;
            let written = self.send(true).await?;
            let outcomes = written.outcomes.into_iter().chain(std::iter::repeat(EnqueueOutcome::New));
            let handle = |(id, outcome)| JobHandle::enqueued(JobRef::from_id(id).in_store(store), outcome);
            Ok(written.ids.unwrap_or_default().into_iter().zip(outcomes).map(handle).collect())
        })
    }
}

impl<J, R> fmt::Debug for EnqueueAll<'_, J, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueAll").field("options", &self.options).finish_non_exhaustive()
    }
}
