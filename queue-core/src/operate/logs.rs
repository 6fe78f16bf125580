//! Log lines captured during job attempts.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::FromRow;

use super::rejection::explain;
use crate::{
    error::Error,
    results::{QueueConnection, QueueJob},
};

/// Log of one attempt of a job. Logs are captured for job types with [`keep_logs`](crate::options::Options::keep_logs).
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for log in Queue::new(pool).job(job).logs().await? {
///     println!("attempt {}, {} lines omitted or truncated:\n{}", log.attempt, log.cut, log.text);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct AttemptLog {
    /// Number of the attempt, starting at 1.
    pub attempt: i16,
    /// Time the log was written, at the end of the attempt, according to the database clock.
    pub at: DateTime<Utc>,
    /// Number of lines that were truncated, or omitted from the middle of the log. A note in the text marks the omission.
    pub cut: i64,
    /// Log lines, in which control characters are replaced.
    pub text: String,
}

/// Omits the text, which may be confidential.
impl std::fmt::Debug for AttemptLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { attempt, at, cut, text } = self;
        f.debug_struct("AttemptLog").field("attempt", attempt).field("at", at).field("cut", cut).field("bytes", &text.len()).finish()
    }
}

impl<C: QueueConnection> QueueJob<'_, C> {
    /// Returns the logs of the job's last twenty attempts that have a log, oldest attempt first. The list is empty if the job does not
    /// exist or its type keeps no logs.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
    /// use queue_core::Queue;
    ///
    /// for log in Queue::new(&pool).job(job).logs().await? {
    ///     println!("attempt {}:\n{}", log.attempt, log.text);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn logs(&self) -> Result<Vec<AttemptLog>, Error> {
        let statement = sqlx::query_as(self.queue.store.sql(include_str!("../../sql/logs.sql"))).bind(self.id);
        statement.fetch_all(&mut *self.queue.connection().await?).await.map_err(|error| explain(error, self.queue.store))
    }
}
