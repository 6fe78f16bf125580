//! What waits for nobody: ready jobs that no living worker serves.

use std::collections::HashSet;

use serde::Serialize;
use sqlx::FromRow;

use super::{record::JobRecord, refusal::explain};
use crate::{
    connect::IntoConnection,
    define::{JobId, JobState},
    error::Error,
    schema::Store,
};

/// Ready jobs of one queue, type and version that no living worker serves: none has the queue, or none that has it knows the
/// type in that version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Unserved {
    /// The queue.
    pub queue: String,
    /// The name of the job type, which may be an alias.
    pub job_type: String,
    /// The version of their payloads. Workers may serve the type in older ones.
    pub version: i16,
    /// How many are ready, counted up to [`Unserved::MOST`], or up to ten times that in all of them.
    pub jobs: i64,
    /// Whether there may be more; then there may be none.
    pub partial: bool,
}

impl Unserved {
    /// So many jobs of each queue and type are counted at most.
    pub const MOST: i64 = 10_000;

    /// So many queues, types and versions are told at most.
    pub const LISTED: i64 = 100;
}

/// The queues, job types and versions with ready jobs that no living worker serves: the first [`Unserved::LISTED`] by name. Looks at every lane, and
/// at ready jobs of these only.
///
/// # Errors
/// The database's.
pub async fn unserved(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Unserved>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/unserved.sql"))).bind(Unserved::MOST).bind(Unserved::LISTED);
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Those of these jobs that are ready and that no living worker serves. Looks at workers only.
///
/// # Errors
/// The database's.
pub async fn unserved_of(on: impl IntoConnection<'_>, store: Store, jobs: &[JobRecord]) -> Result<HashSet<JobId>, Error> {
    let ready: Vec<&JobRecord> = jobs.iter().filter(|job| job.state == JobState::Ready).collect();
    if ready.is_empty() {
        return Ok(HashSet::new());
    }
    let mut on = on.into_connection();
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/served.sql")))
        .bind(ready.iter().map(|job| job.queue.as_str()).collect::<Vec<_>>())
        .bind(ready.iter().map(|job| job.job_type.as_str()).collect::<Vec<_>>())
        .bind(ready.iter().map(|job| job.version).collect::<Vec<_>>());
    let served: Vec<i64> = statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))?;
    let served: HashSet<usize> = served.into_iter().map(|place| place as usize - 1).collect();
    Ok(ready.into_iter().enumerate().filter(|(place, _)| !served.contains(place)).map(|(_, job)| job.id).collect())
}
