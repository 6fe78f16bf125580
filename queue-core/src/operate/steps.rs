//! Journaled steps of a durable job.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::FromRow;

use super::rejection::explain;
use crate::{
    context::TIMEOUT_SUFFIX,
    error::Error,
    results::{QueueConnection, QueueJob},
};

/// Completed step of a [durable](crate::options::Options::durable) job, or a sleep or timed wait that has started.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for step in Queue::new(pool).job(job).steps().await? {
///     println!("{}: attempt {}, {} ms", step.name, step.attempt, step.ran_ms);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobStep {
    /// Name of the step.
    pub name: String,
    /// Number of the attempt that completed the step.
    pub attempt: i16,
    /// Time the step was journaled, according to the database clock.
    pub at: DateTime<Utc>,
    /// Duration of the step, in milliseconds; 0 for a sleep.
    pub ran_ms: i32,
    /// End time of a sleep, or deadline of a wait for a signal; `None` for other steps. The deadline of a wait `NAME` is stored in a step
    /// `NAME (timeout)`, and also in the step `NAME` if the wait timed out.
    pub until: Option<DateTime<Utc>>,
}

impl JobStep {
    /// Returns whether the step is a timed-out wait for a signal.
    pub fn is_timed_out(&self) -> bool {
        self.until.is_some_and(|until| until < self.at)
    }

    /// Returns `NAME` for a step `NAME (timeout)`, which records the deadline of the wait `NAME`. Returns `None` for other steps. The step
    /// `NAME (timeout)` stays in the journal after the wait.
    pub fn waits_for(&self) -> Option<&str> {
        self.until.and(self.name.strip_suffix(TIMEOUT_SUFFIX)).filter(|name| !name.is_empty())
    }
}

impl<C: QueueConnection> QueueJob<'_, C> {
    /// Returns the first thousand steps of the job, in the order in which they were journaled, without outputs. The list is empty if the
    /// job does not exist or is not durable.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
    /// use queue_core::Queue;
    ///
    /// for step in Queue::new(&pool).job(job).steps().await? {
    ///     println!("{}: {} after {} ms", step.at, step.name, step.ran_ms);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn steps(&self) -> Result<Vec<JobStep>, Error> {
        let statement = sqlx::query_as(self.queue.store.sql(include_str!("../../sql/steps.sql"))).bind(self.id);
        statement.fetch_all(&mut *self.queue.connection().await?).await.map_err(|error| explain(error, self.queue.store))
    }
}
