//! Map steps of durable jobs, with the outcomes of the spawned jobs.

use serde::Serialize;
use sqlx::FromRow;

use super::rejection::explain;
use crate::{
    error::Error,
    results::{QueueConnection, QueueJob},
};

/// Map step of a [durable](crate::options::Options::durable) job, with the outcomes of the jobs that the step has spawned.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for gather in Queue::new(pool).job(job).gathers().await? {
///     println!("{}: {} completed, {} dead", gather.name, gather.completed, gather.dead);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobGather {
    /// Name of the step that spawned the jobs.
    pub name: String,
    /// Number of jobs; `None` until all jobs have been spawned.
    pub total: Option<i64>,
    /// Number of jobs not yet counted as finished.
    pub need: i64,
    /// Number of completed jobs.
    pub completed: i64,
    /// Number of dead letters.
    pub dead: i64,
    /// Number of cancelled or expired jobs.
    pub cancelled: i64,
    /// Maximum number of jobs that are ready or running at the same time; `None` for no limit.
    pub most: Option<i32>,
}

impl<C: QueueConnection> QueueJob<'_, C> {
    /// Returns the first thousand map steps of the job, sorted by name. The list is empty if the job does not exist or is not durable.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
    /// use queue_core::Queue;
    ///
    /// for gather in Queue::new(&pool).job(job).gathers().await? {
    ///     println!("{}: {} unfinished", gather.name, gather.need);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn gathers(&self) -> Result<Vec<JobGather>, Error> {
        let statement = sqlx::query_as(self.queue.store.sql(include_str!("../../sql/gathers.sql"))).bind(self.id);
        statement.fetch_all(&mut *self.queue.connection().await?).await.map_err(|error| explain(error, self.queue.store))
    }
}
