//! Dead letters grouped by job type and error.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::FromRow;

use super::{fingerprint::fingerprint, rejection::explain};
use crate::{
    define::JobId,
    error::Error,
    results::{Queue, QueueConnection},
};

/// Dead letters of one job type whose errors differ only in numbers, ids and quoted text.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for group in Queue::new(pool).dead_groups().await?.groups {
///     println!("{} {}: {} (example: job {})", group.jobs, group.job_type, group.error, group.example);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct DeadGroup {
    /// Stored name of the job type.
    pub job_type: String,
    /// Error of the jobs, with `…` in place of numbers, ids and quoted text.
    pub error: String,
    /// Number of dead letters in the group, among the latest [`DeadGroups::MOST`] dead letters.
    pub jobs: u64,
    /// Time at which the first job of the group died.
    pub first: DateTime<Utc>,
    /// Time at which the last job of the group died.
    pub last: DateTime<Utc>,
    /// Id of the group's job that died last.
    pub example: JobId,
    /// Queues of the group's jobs, at most ten.
    pub queues: Vec<String>,
    /// Ids of all jobs in the group, most recent dead letter first.
    #[serde(skip)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub ids: Vec<JobId>,
}

/// Groups of the latest dead letters, largest group first.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Queue, operate::Operation};
///
/// let dead = Queue::new(pool).dead_groups().await?;
/// if let Some(largest) = dead.groups.into_iter().next() {
///     Queue::new(pool).apply_to(largest.ids, Operation::Requeue).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct DeadGroups {
    /// Groups of dead letters, largest first.
    pub groups: Vec<DeadGroup>,
    /// Number of dead letters that were read.
    pub looked_at: u64,
    /// Whether there are older dead letters that were not read.
    pub partial: bool,
}

impl DeadGroups {
    /// Maximum number of dead letters that [`Queue::dead_groups`] reads.
    pub const MOST: u32 = 2000;
}

#[derive(FromRow)]
struct DeadRow {
    id: JobId,
    died_at: DateTime<Utc>,
    queue: String,
    job_type: String,
    error: String,
}

impl<C: QueueConnection> Queue<C> {
    /// Groups the latest dead letters, at most [`DeadGroups::MOST`], by job type and error.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn dead_groups(&self) -> Result<DeadGroups, Error> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/newest_dead.sql"))).bind(i64::from(DeadGroups::MOST) + 1);
        let mut rows: Vec<DeadRow> =
            statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))?;
        rows.sort_by_key(|row| std::cmp::Reverse((row.died_at, row.id)));
        let partial = rows.len() > DeadGroups::MOST as usize;
        rows.truncate(DeadGroups::MOST as usize);
        Ok(DeadGroups { looked_at: rows.len() as u64, groups: group_rows(rows), partial })
    }
}

/// Groups rows by job type and error. The rows must be sorted by `died_at`, in descending order.
fn group_rows(rows: Vec<DeadRow>) -> Vec<DeadGroup> {
    let (mut indexes, mut groups) = (HashMap::<(String, String), usize>::new(), Vec::<DeadGroup>::new());
    for DeadRow { id, died_at, queue, job_type, error } in rows {
        let error = fingerprint(&error);
        let index = *indexes.entry((job_type.clone(), error.clone())).or_insert_with(|| {
            let (first, last) = (died_at, died_at);
            groups.push(DeadGroup { job_type, error, jobs: 0, first, last, example: id, queues: Vec::new(), ids: Vec::new() });
            groups.len() - 1
        });
        let group = &mut groups[index];
        (group.jobs, group.first) = (group.jobs + 1, died_at);
        group.ids.push(id);
        if group.queues.len() < 10 && !group.queues.contains(&queue) {
            group.queues.push(queue);
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse((group.jobs, group.last)));
    groups
}
