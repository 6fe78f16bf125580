//! Ready jobs that no live worker serves.

use std::collections::HashSet;

use serde::Serialize;
use sqlx::FromRow;

use super::{record::JobRecord, rejection::explain};
use crate::{
    define::{JobId, JobState},
    error::Error,
    results::{Queue, QueueConnection},
};

/// Ready jobs of one queue, type and version that no live worker serves. Either no worker serves the queue, or no worker of the queue
/// knows this version of the type.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for entry in Queue::new(pool).unserved().await? {
///     println!("no worker serves {} version {} in queue {}: {} jobs", entry.job_type, entry.version, entry.queue, entry.jobs);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Unserved {
    /// Name of the queue that contains the jobs.
    pub queue: String,
    /// Name of the job type, which may be an alias.
    pub job_type: String,
    /// Version of the payloads. Workers may serve other versions of the type.
    pub version: i16,
    /// Number of ready jobs of this queue, type and version. Counted up to [`Unserved::MOST`] per entry, and up to ten times
    /// [`Unserved::MOST`] for all entries together.
    pub jobs: i64,
    /// Whether there may be more jobs than were counted. If true, an entry with a count of 0 may have no jobs at all.
    pub partial: bool,
}

impl Unserved {
    /// Maximum number of jobs counted per queue, type and version.
    pub const MOST: i64 = 10_000;

    /// Maximum number of entries that [`Queue::unserved`] returns.
    pub const LISTED: i64 = 100;
}

impl<C: QueueConnection> Queue<C> {
    /// Returns the queues, job types and versions with ready jobs that no live worker serves, sorted by queue and job type. Returns at
    /// most [`Unserved::LISTED`] entries. The query reads every lane, but counts only the ready jobs of unserved entries.
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn unserved(&self) -> Result<Vec<Unserved>, Error> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/unserved.sql"))).bind(Unserved::MOST).bind(Unserved::LISTED);
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    /// Returns the ids of those jobs in `jobs` that are ready and that no live worker serves. The query reads only the table of workers.
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn unserved_of(&self, jobs: &[JobRecord]) -> Result<HashSet<JobId>, Error> {
        let ready: Vec<&JobRecord> = jobs.iter().filter(|job| job.state == JobState::Ready).collect();
        if ready.is_empty() {
            return Ok(HashSet::new());
        }
        let statement = sqlx::query_scalar(self.store.sql(include_str!("../../sql/served.sql")))
            .bind(ready.iter().map(|job| job.queue.as_str()).collect::<Vec<_>>())
            .bind(ready.iter().map(|job| job.job_type.as_str()).collect::<Vec<_>>())
            .bind(ready.iter().map(|job| job.version).collect::<Vec<_>>());
        let served: Vec<i64> = statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))?;
        let served: HashSet<usize> = served.into_iter().map(|position| position as usize - 1).collect();
        Ok(ready.into_iter().enumerate().filter(|(position, _)| !served.contains(position)).map(|(_, job)| job.id).collect())
    }
}
