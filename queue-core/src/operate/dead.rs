//! Dead letters by why they died.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::FromRow;

use super::{fingerprint::fingerprint, refusal::explain};
use crate::{connect::IntoConnection, define::JobId, error::Error, schema::Store};

/// Dead letters of one type that died alike: their errors are the same but for numbers, ids and what is quoted.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct DeadGroup {
    /// The job type, by the name under which they are stored.
    pub job_type: String,
    /// What their errors have in common.
    pub error: String,
    /// How many there are, among those that were looked at.
    pub jobs: u64,
    /// When the first of these died.
    pub first: DateTime<Utc>,
    /// When the last did.
    pub last: DateTime<Utc>,
    /// The last one.
    pub example: JobId,
    /// Their queues.
    pub queues: Vec<String>,
    /// All of these, the last first.
    #[serde(skip)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub ids: Vec<JobId>,
}

/// The groups of those that died last, the largest first.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct DeadGroups {
    /// The groups.
    pub groups: Vec<DeadGroup>,
    /// How many dead letters were looked at.
    pub looked_at: u64,
    /// Whether there are more, which died earlier.
    pub partial: bool,
}

impl DeadGroups {
    /// So many dead letters are looked at.
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

/// The dead letters that died last, at most [`DeadGroups::MOST`], grouped by job type and error.
///
/// # Errors
/// The database's.
pub async fn dead_groups(on: impl IntoConnection<'_>, store: Store) -> Result<DeadGroups, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/newest_dead.sql"))).bind(i64::from(DeadGroups::MOST) + 1);
    let mut rows: Vec<DeadRow> = statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))?;
    rows.sort_by_key(|row| std::cmp::Reverse((row.died_at, row.id)));
    let partial = rows.len() > DeadGroups::MOST as usize;
    rows.truncate(DeadGroups::MOST as usize);
    Ok(DeadGroups { looked_at: rows.len() as u64, groups: grouped(rows), partial })
}

/// Rows come the last first.
fn grouped(rows: Vec<DeadRow>) -> Vec<DeadGroup> {
    let (mut places, mut groups) = (HashMap::<(String, String), usize>::new(), Vec::<DeadGroup>::new());
    for DeadRow { id, died_at, queue, job_type, error } in rows {
        let error = fingerprint(&error);
        let place = *places.entry((job_type.clone(), error.clone())).or_insert_with(|| {
            let (first, last) = (died_at, died_at);
            groups.push(DeadGroup { job_type, error, jobs: 0, first, last, example: id, queues: Vec::new(), ids: Vec::new() });
            groups.len() - 1
        });
        let group = &mut groups[place];
        (group.jobs, group.first) = (group.jobs + 1, died_at);
        group.ids.push(id);
        if group.queues.len() < 10 && !group.queues.contains(&queue) {
            group.queues.push(queue);
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse((group.jobs, group.last)));
    groups
}
