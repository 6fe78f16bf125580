//! Statistics of a store: jobs by queue, type and state; longest waits; workers.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::rejection::explain;
use crate::{
    connect::IntoConnection,
    context::Registry,
    define::{JobState, UnknownState},
    error::Error,
    schema::Store,
};

/// Number of jobs of one queue and type in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Count {
    /// Queue.
    pub queue: String,
    /// Job type.
    pub job_type: String,
    /// State.
    pub state: JobState,
    /// Number of jobs; a lower bound if `partial`.
    pub jobs: i64,
    /// Whether there may be more, because [`counts`] stops counting at a limit.
    pub partial: bool,
}

/// Maximum number of entries counted per state.
const MAX_COUNTED: i64 = 20_000;

/// Returns the number of jobs by queue, type and state, sorted in this order, states in the order of a job's life. Jobs stored under an
/// alias of a type that is linked into this binary are counted under the type's current name.
///
/// Takes some ten milliseconds regardless of the number of jobs, and marks counts that may be too low:
///
/// - If at most 20,000 jobs are ready, all of them are counted; the same holds for scheduled and for blocked jobs. With more, each lane
///   (queue, type and priority) is counted up to 20,000 jobs, or up to its share of 50,000.
/// - The newest 20,000 dead letters are counted. Of completed, cancelled and expired jobs, the newest 5,000 with details (an output,
///   several attempts, a cancellation) are counted, and the newest 5,000 rows of others, each of one to some hundred jobs. If there are
///   more, they may belong to any queue and type: even a missing count then means "none, or more".
///
/// [`counts_exactly`] counts all jobs.
///
/// # Errors
/// Database errors.
pub async fn counts(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Count>, Error> {
    let found = query_counts(on, store, Some(MAX_COUNTED), None).await?;
    Ok(merge_aliases(found.counts, &Registry::linked().unwrap_or_default()))
}

/// Returns the same as [`counts`], but counts all jobs, in one snapshot. Takes time in proportion to the jobs, including the history: about
/// half a second per million.
///
/// # Errors
/// Database errors.
pub async fn counts_exactly(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Count>, Error> {
    let found = query_counts(on, store, None, None).await?;
    Ok(merge_aliases(found.counts, &Registry::linked().unwrap_or_default()))
}

/// Number of jobs in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct StateCount {
    /// State.
    pub state: JobState,
    /// Number of jobs; a lower bound if `partial`.
    pub jobs: i64,
    /// Whether there may be more.
    pub partial: bool,
}

/// The queues and types with the most jobs, and totals by state.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Busiest {
    /// Counts of these queues and types, as from [`counts`].
    pub counts: Vec<Count>,
    /// Totals over all queues and types.
    pub totals: Vec<StateCount>,
    /// Number of further queues and types that were seen. There may be others that were not.
    pub more: i64,
}

/// Maximum number of entries counted per state.
const MAX_COUNTED_BUSIEST: i64 = 5_000;

/// Returns counts as [`counts`] does, but only of the `top` queues and types with the most jobs seen. Takes some ten milliseconds
/// regardless of the number of queues: it reads 5,000 entries per state, and each of these queues and types has its share of 12,500 ready jobs.
///
/// # Errors
/// Database errors.
pub async fn busiest(on: impl IntoConnection<'_>, store: Store, top: u16) -> Result<Busiest, Error> {
    let mut found = query_counts(on, store, Some(MAX_COUNTED_BUSIEST), Some(i32::from(top))).await?;
    found.counts = merge_aliases(found.counts, &Registry::linked().unwrap_or_default());
    Ok(found)
}

async fn query_counts(on: impl IntoConnection<'_>, store: Store, most: Option<i64>, top: Option<i32>) -> Result<Busiest, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query(store.sql(include_str!("../../sql/counts.sql"))).bind(most).bind(top);
    let rows = statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))?;
    Busiest::from_rows(&rows).map_err(|error| explain(error, store))
}

impl Busiest {
    /// Rows without a queue are totals over all queues. A row without a state has the number of queues and types left out.
    fn from_rows(rows: &[PgRow]) -> sqlx::Result<Self> {
        let mut found = Self::default();
        for row in rows {
            let (queue, state): (Option<String>, Option<&str>) = (row.try_get("queue")?, row.try_get("state")?);
            let (jobs, partial) = (row.try_get("jobs")?, row.try_get("partial")?);
            let state = state.map(str::parse::<JobState>).transpose();
            match (queue, state.map_err(|error: UnknownState| sqlx::Error::Decode(error.into()))?) {
                (_, None) => found.more = jobs,
                (None, Some(state)) => found.totals.push(StateCount { state, jobs, partial }),
                (Some(queue), Some(state)) => {
                    found.counts.push(Count { queue, job_type: row.try_get("job_type")?, state, jobs, partial });
                }
            }
        }
        found.totals.sort_by_key(|count| count.state);
        Ok(found)
    }
}

/// Merges the counts of all names of a type.
fn merge_aliases(found: Vec<Count>, registry: &Registry) -> Vec<Count> {
    let mut counts: BTreeMap<(String, String, JobState), Count> = BTreeMap::new();
    for mut count in found {
        if let Some(registration) = registry.get(&count.job_type) {
            registration.options().name.clone_into(&mut count.job_type);
        }
        match counts.entry((count.queue.clone(), count.job_type.clone(), count.state)) {
            Entry::Vacant(entry) => drop(entry.insert(count)),
            Entry::Occupied(mut entry) => {
                let sum = entry.get_mut();
                sum.jobs += count.jobs;
                sum.partial |= count.partial;
            }
        }
    }
    counts.into_values().collect()
}

/// Longest-waiting ready job of a queue. Shows how far its workers are behind.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Oldest {
    /// Queue.
    pub queue: String,
    /// Time since when the job has been ready, by the database's clock; `None` if none was found, though there may be one.
    pub since: Option<DateTime<Utc>>,
    /// Duration since then, by the same clock. In JSON `waited_ms`, in milliseconds.
    #[serde(rename = "waited_ms", serialize_with = "serialize_ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub waited: Option<Duration>,
    /// Whether another job may have waited longer; see [`oldest`].
    pub partial: bool,
}

/// Returns the longest-waiting ready job of every queue that has one, longest wait first. Reads one index entry per lane, which takes about
/// a millisecond.
///
/// Before that entry there may be dead entries of jobs that are gone, which remain while any session holds an old snapshot. Once there are
/// more than 100,000 of them in lanes from which jobs were claimed in the last ten seconds, reading starts at the workers' position. A job
/// that was committed late, or returned behind that position, is then missed until workers have found it, some seconds at most;
/// [`Oldest::partial`] reports this. In a lane that no worker serves, all dead entries are read: about 150 ms per million.
///
/// # Errors
/// Database errors.
pub async fn oldest(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Oldest>, Error> {
    query_oldest(on, store, None).await
}

/// Returns the same as [`oldest`], but at most `most` queues: those with the longest waits.
///
/// # Errors
/// Database errors.
pub async fn oldest_of(on: impl IntoConnection<'_>, store: Store, most: u16) -> Result<Vec<Oldest>, Error> {
    query_oldest(on, store, Some(i32::from(most))).await
}

async fn query_oldest(on: impl IntoConnection<'_>, store: Store, most: Option<i32>) -> Result<Vec<Oldest>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/oldest.sql"))).bind(most);
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Backlog of one queue.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Backlog {
    /// Number of ready jobs, counted up to the requested maximum.
    pub ready: i64,
    /// Whether there may be more jobs, and one that has waited longer.
    pub partial: bool,
    /// Time since when the first of them has been ready, by the database's clock; `None` if no job is ready.
    pub since: Option<DateTime<Utc>>,
    /// Duration since then, by the same clock. In JSON `waited_ms`, in milliseconds.
    #[serde(rename = "waited_ms", serialize_with = "serialize_ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub waited: Option<Duration>,
}

/// Returns the backlog of one queue, for polling every few seconds, for example by an autoscaler: the number of ready jobs, counted up to
/// `most`, and the wait of the first. In each lane of the queue it reads one index entry from the front and up to `most` from the back.
/// This takes a few milliseconds regardless of the number of jobs and the age of the oldest snapshot. The limits of [`oldest`] with dead entries
/// apply here too; [`Backlog::partial`] reports where they may have an effect.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let mail = queue_core::operate::backlog(&pool, queue_core::Store::default(), "mail", 10_000).await?;
/// println!("{}{} ready, the first for {:?}", mail.ready, if mail.partial { "+" } else { "" }, mail.waited.unwrap_or_default());
/// # Ok(()) }
/// ```
///
/// # Errors
/// Database errors.
pub async fn backlog(on: impl IntoConnection<'_>, store: Store, queue: &str, most: u32) -> Result<Backlog, Error> {
    let mut on = on.into_connection();
    let most = i32::try_from(most).unwrap_or(i32::MAX - 1).min(i32::MAX - 1);
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/backlog.sql"))).bind(queue).bind(most);
    statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Returns the database's time. Inside a transaction this is the time of its start.
///
/// # Errors
/// Database errors.
pub async fn now(on: impl IntoConnection<'_>, store: Store) -> Result<DateTime<Utc>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/now.sql")));
    statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Worker that has registered itself.
#[derive(Clone, Debug, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct WorkerRecord {
    /// Identity of the worker, new at every start.
    pub id: Uuid,
    /// Name of the worker.
    pub name: String,
    /// Host name of its machine.
    pub host: String,
    /// Process id on that machine.
    pub pid: i32,
    /// Version of this crate in the worker.
    pub version: String,
    /// Queues that the worker serves; empty for all.
    pub queues: Vec<String>,
    /// Time of its start.
    pub started_at: DateTime<Utc>,
    /// Time at which its last heartbeat expires.
    pub expires_at: DateTime<Utc>,
    /// Whether that time is in the future. Jobs of a silent worker are recovered by others.
    pub alive: bool,
    /// Number of jobs that the worker holds.
    pub jobs: i64,
    /// Number of slots that ran a job or a batch at the last heartbeat; `None` if it was not reported or the worker is silent.
    /// Transactional jobs have separate slots, which are counted here and in [`slots`](Self::slots).
    pub busy: Option<i32>,
    /// Number of slots at the last heartbeat, over the queues that the worker serves. For a worker that serves all queues, those it has
    /// encountered.
    pub slots: Option<i32>,
    /// Resident memory of the process at the last heartbeat, in bytes; `None` if its system does not report it or the worker is silent.
    pub memory: Option<i64>,
}

/// Returns every registered worker that has neither stopped nor been silent for long.
///
/// # Errors
/// Database errors.
pub async fn workers(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<WorkerRecord>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/workers.sql")));
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

impl FromRow<'_, PgRow> for Oldest {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            queue: row.try_get("queue")?,
            since: row.try_get("since")?,
            waited: row.try_get::<Option<f64>, _>("waited_ms")?.map(duration_from_ms),
            partial: row.try_get("partial")?,
        })
    }
}

impl FromRow<'_, PgRow> for Backlog {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            ready: row.try_get("ready")?,
            partial: row.try_get("partial")?,
            since: row.try_get("since")?,
            waited: row.try_get::<Option<f64>, _>("waited_ms")?.map(duration_from_ms),
        })
    }
}

fn duration_from_ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(0.0) / 1000.0).unwrap_or_default()
}

#[expect(clippy::ref_option, reason = "the signature that serde calls")]
fn serialize_ms<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_millis() as u64).serialize(serializer)
}
