//! Selects jobs by a filter, to list them, count them or apply operations to them.

use std::{fmt, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgPool;

use super::{
    bulk::BulkOperation,
    filter::Filter,
    list::{Page, query_page},
    operation::Operation,
    patience::{Patience, collect_page},
    rejection::explain,
};
use crate::{
    define::{JobId, JobState, JobType},
    error::Error,
    results::{Queue, QueueConnection},
    schema::Session,
};

/// Jobs of a store, selected by a filter. Created by [`Queue::jobs`].
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
    at_most: Option<u32>,
    before: Option<JobId>,
}

impl<C> Queue<C> {
    /// Selects all jobs of the store, newest first. The methods of [`Jobs`] narrow the selection.
    pub fn jobs(&self) -> Jobs<'_, C> {
        Jobs { queue: self, filter: Filter::default(), at_most: None, before: None }
    }
}

/// Methods that narrow the selection. Each corresponds to a field of [`Filter`].
impl<C> Jobs<'_, C> {
    /// Replaces the whole filter, so call this method before the methods that narrow the selection. The [`Filter::limit`] and
    /// [`Filter::before`] of `filter` apply to lists only.
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

    /// Selects jobs of the type `J`, including jobs stored under its aliases. Repeated calls select several types. Default: any type.
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

    /// Selects jobs that finished or died within the last `age`, and unfinished jobs that were enqueued within the last `age`.
    pub fn since(mut self, age: Duration) -> Self {
        self.filter.since = Some(age);
        self
    }

    /// Selects jobs that finished or died at least `age` ago, and unfinished jobs that were enqueued at least `age` ago.
    pub fn older_than(mut self, age: Duration) -> Self {
        self.filter.older_than = Some(age);
        self
    }

    /// Selects jobs whose last error contains `text`. Lists then contain only dead letters.
    pub fn error(mut self, text: impl Into<String>) -> Self {
        self.filter.error = Some(text.into());
        self
    }

    /// Sets the maximum number of jobs. For lists, this is the size of a page (default: 50, maximum: [`Filter::MOST`]). Operations have no
    /// limit by default.
    pub fn limit(mut self, jobs: u32) -> Self {
        (self.filter.limit, self.at_most) = (jobs, Some(jobs));
        self
    }

    /// Selects jobs enqueued before this job. For the next page of a list, use [`Page::next`] of the previous page.
    pub fn before(mut self, job: JobId) -> Self {
        (self.filter.before, self.before) = (Some(job), Some(job));
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
        let Self { queue, filter, .. } = self;
        filter.check()?;
        let mut session = Session::begin_read_only(queue.lend().await).await?;
        let found = query_page(session.connection(), queue.store, &filter).await;
        session.end(found).await.map_err(|error| explain(error, queue.store))
    }

    /// Lists jobs like [`list`](Self::list), which reads a limited number of rows. If a page is not full, reads further rows until
    /// [`Filter::limit`] jobs are found or the time limit of `patience` is reached.
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
        let Self { queue, filter, .. } = self;
        filter.check()?;
        let mut session = Session::begin_read_only(queue.lend().await).await?;
        let found = collect_page(session.connection(), queue.store, filter, patience).await;
        session.end(found).await.map_err(|error| explain(error, queue.store))
    }
}

/// Operations on all selected jobs. [`Operation`] describes each operation. The rate and the number of jobs can be limited before the
/// [`BulkOperation`] is awaited.
impl<'q, C> Jobs<'q, C> {
    /// Applies the operation to every selected job.
    pub fn apply(self, operation: Operation) -> BulkOperation<'q, C> {
        let Self { queue, filter, at_most, before } = self;
        let operation = BulkOperation::on_filter(queue, Filter { before, ..filter }, operation);
        if let Some(jobs) = at_most { operation.at_most(jobs.into()) } else { operation }
    }

    /// Cancels every selected job that is waiting or running.
    pub fn cancel(self) -> BulkOperation<'q, C> {
        self.apply(Operation::Cancel)
    }

    /// Reschedules every selected job that is ready or scheduled. The new due time `at` can be earlier or later than the previous due
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
    /// Completed, cancelled and expired jobs can only be requeued by id.
    pub fn requeue(self) -> BulkOperation<'q, C> {
        self.apply(Operation::Requeue)
    }

    /// Deletes every selected dead letter with its payload and history.
    pub fn discard(self) -> BulkOperation<'q, C> {
        self.apply(Operation::Discard)
    }
}

impl<C> Clone for Jobs<'_, C> {
    fn clone(&self) -> Self {
        Self { queue: self.queue, filter: self.filter.clone(), at_most: self.at_most, before: self.before }
    }
}

impl<C> fmt::Debug for Jobs<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("filter", &self.filter).field("at_most", &self.at_most).finish_non_exhaustive()
    }
}
