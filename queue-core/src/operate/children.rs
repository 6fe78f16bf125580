//! Children spawned by a durable job.

use serde::Serialize;
use sqlx::FromRow;

use super::rejection::explain;
use crate::{
    define::JobId,
    error::Error,
    results::{QueueConnection, QueueJob},
};

/// Child of a [durable](crate::options::Options::durable) job.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// let children = Queue::new(pool).job(job).children().await?;
/// let unfinished = children.iter().filter(|child| child.state.is_none()).count();
/// println!("{unfinished} of {} children have not finished", children.len());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobChild {
    /// Name of the step that spawned the child.
    pub name: String,
    /// Job id of the child.
    pub id: JobId,
    /// Final state as reported to the parent: `completed`, `dead`, `cancelled` or `expired`. `None` if the child has not finished.
    pub state: Option<String>,
    /// Current state of an unfinished child, loaded only for the first hundred unfinished children. `None` if the state was not loaded,
    /// or if the child has finished or no longer exists.
    pub now: Option<String>,
}

impl JobChild {
    /// Returns the final state of a finished child, or the current state of an unfinished child. Returns `unfinished` if the state
    /// was not loaded.
    pub fn current_state(&self) -> &str {
        self.state.as_deref().or(self.now.as_deref()).unwrap_or("unfinished")
    }
}

impl<C: QueueConnection> QueueJob<'_, C> {
    /// Returns the first thousand children of the job, in spawn order. The list is empty if the job does not exist or is not durable.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
    /// use queue_core::Queue;
    ///
    /// for child in Queue::new(&pool).job(job).children().await? {
    ///     println!("{}: {} {}", child.name, child.id, child.current_state());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn children(&self) -> Result<Vec<JobChild>, Error> {
        let statement = sqlx::query_as(self.queue.store.sql(include_str!("../../sql/children.sql"))).bind(self.id);
        statement.fetch_all(&mut *self.queue.connection().await?).await.map_err(|error| explain(error, self.queue.store))
    }
}
