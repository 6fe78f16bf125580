//! Selection of jobs by a filter, to list, count and operate them.

use std::{fmt, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};

use super::{
    bulk::BulkOperation,
    filter::Filter,
    list::{Page, query_page},
    operation::Operation,
    patience::{Patience, collect_page},
    rejection::explain,
    walk::Walk,
};
use crate::{
    connect::{Queue, QueueConnection},
    define::{JobId, JobState, JobType},
    error::Error,
    schema::Session,
};

/// Jobs of a store that a filter selects. Created by [`Queue::jobs`].
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{JobState, Queue};
/// use std::time::Duration;
///
/// let queue = Queue::new(&pool);
/// let dead_mails = queue.jobs().queue("mail").state(JobState::Dead);
/// for job in dead_mails.clone().older_than(Duration::from_hours(24)).list().await?.jobs {
///     println!("{}: {}", job.id, job.error.unwrap_or_default());
/// }
/// let requeued = dead_mails.requeue().rate(50.0).await?;
/// println!("{} requeued", requeued.done);
/// # Ok(()) }
/// ```
#[must_use = "a selection does nothing by itself"]
pub struct Jobs<'q, C = PgPool> {
    queue: &'q Queue<C>,
    filter: Filter,
}

impl<C> Queue<C> {
    /// Returns all jobs of the store, newest first. The methods of [`Jobs`] narrow the selection.
    pub fn jobs(&self) -> Jobs<'_, C> {
        Jobs { queue: self, filter: Filter::default() }
    }
}

/// Narrows the selection. Each method corresponds to a field of [`Filter`].
impl<C> Jobs<'_, C> {
    /// Replaces the whole filter.
    pub fn matching(mut self, filter: &Filter) -> Self {
        self.filter = filter.clone();
        self
    }

    /// Selects jobs in one state. Default: any state.
    pub fn state(mut self, state: JobState) -> Self {
        self.filter.state = Some(state);
        self
    }

    /// Selects jobs of one queue. Default: any queue.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.filter.queue = Some(name.into());
        self
    }

    /// Selects jobs of the type `J`, also under its aliases. Several types can be selected. Default: any type.
    pub fn of_type<J: JobType>(mut self) -> Self {
        let names = std::iter::once(&J::OPTIONS.name).chain(J::OPTIONS.aliases);
        self.filter.job_types.extend(names.map(|name| (*name).to_owned()));
        self
    }

    /// Selects jobs of the type with this name; see [`Filter::job_type`].
    pub fn job_type(mut self, name: &str) -> Self {
        self.filter = self.filter.job_type(name);
        self
    }

    /// Selects jobs with this metadata entry.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.filter = self.filter.meta(key, value);
        self
    }

    /// Selects jobs that finished or died within the last `age`; unfinished jobs that were enqueued within the last `age`.
    pub fn since(mut self, age: Duration) -> Self {
        self.filter.since = Some(age);
        self
    }

    /// Selects jobs that finished or died before the last `age`; unfinished jobs that were enqueued before the last `age`.
    pub fn older_than(mut self, age: Duration) -> Self {
        self.filter.older_than = Some(age);
        self
    }

    /// Selects dead letters whose last error contains `text`.
    pub fn error(mut self, text: impl Into<String>) -> Self {
        self.filter.error = Some(text.into());
        self
    }

    /// Sets the maximum number of jobs per page. Default: 50. Maximum: [`Filter::MOST`].
    pub fn limit(mut self, jobs: u32) -> Self {
        self.filter.limit = jobs;
        self
    }

    /// Selects jobs enqueued before this job, for the next page: [`Page::next`] of the previous page.
    pub fn before(mut self, job: JobId) -> Self {
        self.filter.before = Some(job);
        self
    }

    /// Includes payloads and outputs in lists. Default: not included.
    pub fn with_payloads(mut self) -> Self {
        self.filter.payload = true;
        self
    }
}

impl<C: QueueConnection> Jobs<'_, C> {
    /// Returns a page of the jobs, newest first.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid name in the filter, and an error if the database query fails.
    pub async fn list(self) -> Result<Page, Error> {
        let Self { queue, filter } = self;
        filter.check()?;
        let mut session = Session::begin_read_only(queue.lend().await).await?;
        let found = query_page(session.connection(), queue.store, &filter).await;
        session.end(found).await.map_err(|error| explain(error, queue.store))
    }

    /// Lists jobs like [`list`](Self::list), but reads further rows until [`Filter::limit`] jobs are found or the time limit is reached.
    ///
    /// The number of jobs in a page therefore depends on how fast jobs are found. A page may be short or empty although [`Page::next`]
    /// shows that there may be more jobs.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// use queue_core::{Queue, operate::Patience};
    ///
    /// let page = Queue::new(&pool).jobs().meta("tenant", "acme").list_patiently(Patience::default()).await?;
    /// println!("{} jobs{}", page.jobs.len(), if page.next.is_some() { ", and there may be more" } else { "" });
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`list`](Self::list).
    pub async fn list_patiently(self, patience: Patience) -> Result<Page, Error> {
        let Self { queue, filter } = self;
        filter.check()?;
        let mut session = Session::begin_read_only(queue.lend().await).await?;
        let found = collect_page(session.connection(), queue.store, filter, patience).await;
        session.end(found).await.map_err(|error| explain(error, queue.store))
    }

    /// Returns the number of jobs that [`apply`](Self::apply) would change now.
    ///
    /// # Errors
    /// Returns the errors of [`BulkOperation`], except for errors about the rate.
    pub async fn count(self, operation: Operation) -> Result<u64, Error> {
        self.count_up_to(operation, u64::MAX).await
    }

    /// Counts jobs like [`count`](Self::count), but stops soon after `most` jobs. Cheaper if only the order of magnitude matters.
    ///
    /// # Errors
    /// Returns the errors of [`count`](Self::count).
    pub async fn count_up_to(self, operation: Operation, most: u64) -> Result<u64, Error> {
        let Self { queue, filter } = self;
        let mut session = Session::begin_read_only(queue.lend().await).await?;
        let mut walk = match Walk::begin(session.connection(), queue.store, &filter, operation).await {
            Ok(walk) => walk,
            Err(error) => {
                session.roll_back().await;
                return Err(error);
            }
        };
        let found = count_walk(session.connection(), &mut walk, most).await;
        session.end(found).await.map_err(|error| explain(error, queue.store))
    }
}

/// Operations on all selected jobs. [`Operation`] describes each operation. A [`BulkOperation`] can be limited before it is awaited.
impl<'q, C> Jobs<'q, C> {
    /// Applies the operation to every selected job.
    pub fn apply(self, operation: Operation) -> BulkOperation<'q, C> {
        BulkOperation::on_filter(self.queue, self.filter, operation)
    }

    /// Cancels every selected job that is waiting or running.
    pub fn cancel(self) -> BulkOperation<'q, C> {
        self.apply(Operation::Cancel)
    }

    /// Sets the due time of every selected job that is ready or scheduled to `at`, which can be earlier or later than the previous due
    /// time.
    pub fn reschedule(self, at: DateTime<Utc>) -> BulkOperation<'q, C> {
        self.apply(Operation::Reschedule(at))
    }

    /// Postpones every selected job that is ready or scheduled. The jobs become due `wait` after the current time of the database clock.
    /// A `wait` of more than 100 years is rejected with [`Error::OutOfRange`].
    pub fn snooze(self, wait: Duration) -> BulkOperation<'q, C> {
        self.apply(Operation::Snooze(wait))
    }

    /// Makes every selected job that is scheduled or parked ready now.
    pub fn run_now(self) -> BulkOperation<'q, C> {
        self.apply(Operation::RunNow)
    }

    /// Sets the priority of every selected job that is ready or scheduled. Jobs that already have this priority are skipped.
    pub fn set_priority(self, priority: i16) -> BulkOperation<'q, C> {
        self.apply(Operation::Priority(priority))
    }

    /// Requeues every selected dead letter. A requeued job that becomes a dead letter again during the operation is not requeued again.
    /// Completed and cancelled jobs can only be requeued by id.
    pub fn requeue(self) -> BulkOperation<'q, C> {
        self.apply(Operation::Requeue)
    }

    /// Deletes every selected dead letter with its payload and history.
    pub fn discard(self) -> BulkOperation<'q, C> {
        self.apply(Operation::Discard)
    }
}

async fn count_walk(connection: &mut PgConnection, walk: &mut Walk<'_>, most: u64) -> sqlx::Result<u64> {
    let mut found = 0;
    while let Some(ids) = walk.next(connection, COUNT_BATCH).await? {
        found += ids.len() as u64;
        if found > most {
            break;
        }
    }
    Ok(found)
}

/// Maximum number of jobs per statement when only counting.
const COUNT_BATCH: i64 = 10_001;

impl<C> Clone for Jobs<'_, C> {
    fn clone(&self) -> Self {
        Self { queue: self.queue, filter: self.filter.clone() }
    }
}

impl<C> fmt::Debug for Jobs<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("filter", &self.filter).finish_non_exhaustive()
    }
}
