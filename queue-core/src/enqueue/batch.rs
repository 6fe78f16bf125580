//! Batches: jobs of several types that are collected first and then enqueued together.

use std::{borrow::Cow, fmt, future::Future};

use tracing::{Instrument as _, Span};

use super::{
    bulk::write_all,
    hooks::call_hooks,
    options::{EnqueueOptions, enqueue_methods},
    places::BulkResult,
    row::{EncodedJob, EnqueueRow},
};
use crate::{
    connect::IntoConnection,
    define::{Durability, JobId, JobType},
    error::Error,
    schema::{Connection, Store},
    trace,
};

/// Set of jobs of any types that are enqueued together, in chunks of at most 8,192 jobs. In each chunk, the jobs are enqueued in insertion
/// order, except that unique jobs are enqueued last, in the order of their keys' hashes.
///
/// [`add`](Self::add) checks the payload. Enqueuing does not change the batch, so a retried transaction can enqueue the batch again.
///
/// ```no_run
/// # use std::time::Duration;
/// # use queue_core::{Batch, Priority, job};
/// # use serde::{Serialize, Deserialize};
/// # #[job(send_only)] #[derive(Serialize, Deserialize)] struct SendEmail { to: String }
/// # #[job(send_only)] #[derive(Serialize, Deserialize)] struct Report { month: u8 }
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut batch = Batch::new();
/// batch.add(SendEmail { to: "ada@example.org".into() })?;
/// batch.add(Report { month: 11 })?.priority(Priority::BACKFILL).after(Duration::from_secs(3600));
///
/// let mut tx = pool.begin().await?;
/// let ids = batch.enqueue(&mut tx).await?;
/// tx.commit().await?;
/// println!("the report is job {}", ids[1]);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Batch {
    store: Store,
    durability: Option<Durability>,
    jobs: Vec<EncodedJob>,
    /// Options of each job, in insertion order.
    options: Vec<EnqueueOptions>,
}

impl Batch {
    /// Creates an empty batch for the default store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    enqueue_methods!();

    /// Adds a job. Returns the options of the job, which can then be changed.
    ///
    /// # Errors
    /// Returns [`Error::Payload`] if the payload cannot be stored exactly, [`Error::OutOfRange`] if the ordering key or the fairness key
    /// contains NUL, and [`Error::Sealing`] if a key derived from the payload cannot be hashed. An error leaves the batch unchanged.
    #[allow(clippy::needless_pass_by_value, reason = "jobs are passed by value throughout the API")]
    pub fn add<J: JobType>(&mut self, job: J) -> Result<&mut EnqueueOptions, Error> {
        self.jobs.push(EncodedJob::encode(&job)?);
        let mut options = EnqueueOptions::for_type::<J>();
        call_hooks(&mut options);
        self.options.push(options);
        let at = self.options.len() - 1;
        Ok(&mut self.options[at])
    }

    /// Returns the number of jobs in the batch.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Enqueues all jobs of the batch. Returns the ids of the jobs in insertion order.
    ///
    /// If another job holds the key of a unique job, the id of that other job is returned. Connections and transactions are handled as in
    /// [`EnqueueAll`](super::EnqueueAll).
    ///
    /// # Errors
    /// Returns an error if an option is out of range ([`Error::OneOfMany`] names the job), the schema is missing, or the database fails.
    pub fn enqueue<'c>(&'c self, on: impl IntoConnection<'c>) -> impl Future<Output = Result<Vec<JobId>, Error>> + Send {
        let tenant = on.tenant();
        let on = on.into_connection();
        async move {
            let span = self.span();
            let mut options = Cow::Borrowed(&*self.options);
            if let Some(carried) = trace::current_context(&span) {
                options.to_mut().iter_mut().for_each(|options| options.add_trace(Some(&carried)));
            }
            let mut store = self.store;
            if tenant.is_some() {
                options
                    .to_mut()
                    .iter_mut()
                    .filter_map(|options| options.set_tenant(tenant.clone()))
                    .for_each(|of_tenant| store = of_tenant);
            }
            let sent = self.write((on, store), &options).instrument(span.clone()).await;
            trace::record_bulk_enqueue(&span, sent.as_ref().map(BulkResult::new_jobs));
            Ok(sent?.ids.unwrap_or_default())
        }
    }

    async fn write(&self, (on, store): (Connection<'_>, Store), options: &[EnqueueOptions]) -> Result<BulkResult, Error> {
        let one_of_many = |index, error| Error::OneOfMany { index, source: Box::new(error) };
        for (index, options) in options.iter().enumerate() {
            options.check().map_err(|error| one_of_many(index, error))?;
        }
        let rows = self.jobs.iter().zip(options).enumerate().map(move |(index, (job, options))| {
            EnqueueRow::for_store(store, Cow::Borrowed(job), options, index).map_err(|error| one_of_many(index, error))
        });
        write_all(on, store, self.durability, options, Box::new(rows), true).await
    }

    /// Returns the tracing span of the enqueue. The span includes the queue or the job type only if it is the same for all jobs.
    fn span(&self) -> Span {
        let first = self.options.first();
        let queue = first.map(|first| &*first.queue).filter(|queue| self.options.iter().all(|other| other.queue == *queue));
        let job_type = first.map(|first| first.job_type).filter(|name| self.options.iter().all(|other| other.job_type == *name));
        trace::enqueue_span(queue, job_type)
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("jobs", &self.len()).finish_non_exhaustive()
    }
}
