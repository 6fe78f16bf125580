//! Bulk operations on all jobs that a filter selects, or on listed jobs.

use std::{
    fmt,
    future::{Future, IntoFuture, pending},
    pin::Pin,
    time::{Duration, Instant},
};

use serde::Serialize;

use sqlx::{PgConnection, PgPool};

use super::{
    audit::{self, Note},
    filter::Filter,
    operation::{Operation, OperationOutcome},
    rejection::explain,
    walk::Walk,
};
use crate::{
    define::JobId,
    error::Error,
    results::{Queue, QueueConnection},
    schema::{Session, Store},
};

/// Future that applies an operation to all jobs that a filter selects, or to listed jobs. Created by [`Jobs`](super::Jobs) and
/// [`Queue::apply_to`].
///
/// Processes jobs in batches of at most 1000 jobs. Each job that existed when the operation began is processed at most once. Each batch is
/// a separate transaction, unless the connection is already in a transaction. On a pool, a batch fails if it takes longer than a minute or
/// waits longer than ten seconds for a lock. Jobs that are claimed or locked concurrently are skipped and not counted. After an
/// interruption, completed batches stay in effect, and running the same operation again processes the remaining jobs.
///
/// ```no_run
/// # use queue_core::Queue;
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let outcome = Queue::new(&pool).jobs().queue("mail").requeue().rate(50.0).await?;
/// println!("{} dead letters requeued", outcome.done);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Returns [`Error::OutOfRange`] if the operation does not apply to the filter's state, if a parameter of the operation is out of range,
/// or if the rate is below 0.001 jobs per second. Returns [`Error::InvalidName`] if a name in the filter is invalid, and
/// [`Error::Database`] if a query fails.
#[must_use = "operations do nothing unless awaited"]
pub struct BulkOperation<'q, C = PgPool> {
    queue: &'q Queue<C>,
    filter: Filter,
    operation: Operation,
    rate: Option<f64>,
    at_most: u64,
    stop: Pin<Box<dyn Future<Output = ()> + Send + 'q>>,
    /// Ids of the jobs to process. If set, the filter is ignored.
    ids: Option<Vec<JobId>>,
    note: Option<Note>,
}

/// Number of jobs that a [`BulkOperation`] has changed, by outcome.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// let outcome = Queue::new(pool).jobs().queue("mail").cancel().await?;
/// println!("{} jobs cancelled, {} jobs cancelling", outcome.done, outcome.cancelling);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct BulkOutcome {
    /// Number of jobs on which the operation has taken effect.
    pub done: u64,
    /// Number of jobs that were running and are now cancelling.
    pub cancelling: u64,
}

/// Maximum number of jobs per batch.
const BATCH: i64 = 1000;

/// Minimum rate in jobs per second. A lower rate is probably a mistake.
const MIN_RATE: f64 = 0.001;

impl<C> Queue<C> {
    /// Applies the operation to the jobs `ids`, in this order. Jobs whose state does not allow the operation are skipped.
    pub fn apply_to(&self, ids: impl IntoIterator<Item = JobId>, operation: Operation) -> BulkOperation<'_, C> {
        BulkOperation { ids: Some(ids.into_iter().collect()), ..BulkOperation::on_filter(self, Filter::default(), operation) }
    }
}

impl<'q, C> BulkOperation<'q, C> {
    pub(super) fn on_filter(queue: &'q Queue<C>, filter: Filter, operation: Operation) -> Self {
        Self { queue, filter, operation, rate: None, at_most: u64::MAX, stop: Box::pin(pending()), ids: None, note: None }
    }

    /// Sets the maximum rate in jobs per second. Default: unlimited.
    pub fn rate(mut self, jobs_a_second: f64) -> Self {
        self.rate = Some(jobs_a_second);
        self
    }

    /// Sets the maximum number of jobs to process. Default: unlimited.
    pub fn at_most(mut self, jobs: u64) -> Self {
        self.at_most = jobs;
        self
    }

    /// Sets a future that ends the operation early. Once `stop` completes, the operation ends after the current batch.
    pub fn until(mut self, stop: impl Future<Output = ()> + Send + 'q) -> Self {
        self.stop = Box::pin(stop);
        self
    }

    /// Records the operation in the [`Queue::audit`] log. The transaction of each batch adds the batch's job count to the entry. Default:
    /// not recorded.
    pub fn noted(mut self, note: Note) -> Self {
        self.note = Some(note);
        self
    }
}

impl<C: QueueConnection> BulkOperation<'_, C> {
    /// Returns the number of jobs that the operation would change now, and changes nothing. Jobs that are listed by id are counted
    /// regardless of their state.
    ///
    /// ```no_run
    /// # async fn example(queue: queue_core::Queue) -> Result<(), queue_core::Error> {
    /// println!("{} jobs would be cancelled", queue.jobs().queue("mail").cancel().count().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of the operation, except for errors about the rate.
    pub async fn count(self) -> Result<u64, Error> {
        self.count_up_to(u64::MAX).await
    }

    /// Counts jobs like [`count`](Self::count), but stops soon after `most` jobs. Use this method if only the order of magnitude matters.
    ///
    /// # Errors
    /// Returns the errors of [`count`](Self::count).
    pub async fn count_up_to(self, most: u64) -> Result<u64, Error> {
        let Self { queue, filter, operation, at_most, ids, .. } = self;
        let mut session = Session::begin_read_only(queue.lend().await).await?;
        let found = match JobSource::begin(session.connection(), queue.store, &filter, operation, ids).await {
            Ok(mut source) => count_jobs(session.connection(), &mut source, most.min(at_most)).await,
            Err(error) => {
                session.roll_back().await;
                return Err(error);
            }
        };
        session.end(found).await.map(|found| found.min(at_most)).map_err(|error| explain(error, queue.store))
    }

    async fn send(self) -> Result<BulkOutcome, Error> {
        let Self { queue, filter, operation, rate, at_most, mut stop, ids, note } = self;
        if let Some(rate) = rate.filter(|rate| !rate.is_finite() || *rate < MIN_RATE) {
            return Err(Error::OutOfRange { what: "the rate", value: rate.to_string(), range: "at least 0.001 a second" });
        }
        // With a rate limit, a batch has at most a tenth of the jobs allowed per second, so that the jobs are spread evenly. A batch
        // always has at least one job.
        let most = rate.map_or(BATCH, |rate| ((rate / 10.0) as i64).clamp(1, BATCH));
        let store = queue.store;
        let mut source = JobSource::begin(&mut *queue.connection().await?, store, &filter, operation, ids).await?;
        let (started, mut processed, mut swept, mut entry) = (Instant::now(), 0_usize, BulkOutcome::default(), None);
        let explain_error = |error| explain(error, store);
        while let left @ 1.. = at_most.saturating_sub(processed as u64) {
            let most = most.min(i64::try_from(left).unwrap_or(most));
            // On a pool, a connection is held only during a batch, not between batches.
            let mut session = Session::begin_bounded(queue.lend().await).await.map_err(explain_error)?;
            let Some(ids) = source.next(session.connection(), most).await.map_err(explain_error)? else {
                session.roll_back().await;
                break;
            };
            let acted = match &note {
                Some(note) => apply_and_record(session.connection(), store, operation, &ids, note, &mut entry).await,
                None => operation.apply_to_all(session.connection(), store, &ids).await,
            };
            let acted = acted.map_err(explain_error)?;
            session.commit().await.map_err(explain_error)?;
            swept.add(&acted);
            processed += ids.len();
            let due = rate.map_or(started, |rate| started + Duration::from_secs_f64(processed as f64 / rate));
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
        Ok(swept)
    }
}

async fn count_jobs(connection: &mut PgConnection, source: &mut JobSource<'_>, most: u64) -> sqlx::Result<u64> {
    let mut found = 0;
    while let Some(ids) = source.next(connection, COUNT_BATCH).await? {
        found += ids.len() as u64;
        if found > most {
            break;
        }
    }
    Ok(found)
}

/// Maximum number of jobs that one statement reads when jobs are only counted.
const COUNT_BATCH: i64 = 10_001;

impl BulkOutcome {
    fn add(&mut self, acted: &[OperationOutcome]) {
        for acted in acted {
            match acted {
                OperationOutcome::Done => self.done += 1,
                OperationOutcome::Cancelling => self.cancelling += 1,
            }
        }
    }
}

/// Source of job ids: a scan of the jobs that the filter selects, or a list of ids.
enum JobSource<'f> {
    Walk(Walk<'f>),
    Ids(std::vec::IntoIter<JobId>),
}

impl<'f> JobSource<'f> {
    async fn begin(
        connection: &mut PgConnection,
        store: Store,
        filter: &'f Filter,
        operation: Operation,
        ids: Option<Vec<JobId>>,
    ) -> Result<Self, Error> {
        match ids {
            Some(ids) => operation.check().map(|()| Self::Ids(ids.into_iter())),
            None => Walk::begin(connection, store, filter, operation).await.map(Self::Walk),
        }
    }

    async fn next(&mut self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Option<Vec<JobId>>> {
        match self {
            Self::Walk(walk) => walk.next(connection, most).await,
            Self::Ids(ids) => Ok(Some(ids.take(most as usize).collect()).filter(|ids: &Vec<JobId>| !ids.is_empty())),
        }
    }
}

/// Applies the operation to a batch and atomically records it in the audit log. The first batch writes the audit entry and stores the
/// entry's number in `entry`.
async fn apply_and_record(
    connection: &mut PgConnection,
    store: Store,
    operation: Operation,
    ids: &[JobId],
    note: &Note,
    entry: &mut Option<i64>,
) -> sqlx::Result<Vec<OperationOutcome>> {
    let mut session = Session::on(connection).await?;
    let acted = operation.apply_to_all(session.connection(), store, ids).await?;
    let jobs = acted.len() as u64;
    let written = match *entry {
        Some(entry) => audit::add_jobs(session.connection(), store, entry, jobs).await.map(|()| entry)?,
        None => audit::write_entry(session.connection(), store, note, jobs).await?,
    };
    session.commit().await?;
    *entry = Some(written);
    Ok(acted)
}

impl<'q, C: QueueConnection> IntoFuture for BulkOperation<'q, C> {
    type Output = Result<BulkOutcome, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'q>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<C> fmt::Debug for BulkOperation<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkOperation")
            .field("operation", &self.operation)
            .field("filter", &self.filter)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}
