//! A store in figures: jobs by queue, type and state; who waits longest; which workers there are.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::refusal::explain;
use crate::{
    connect::IntoConnection,
    context::Registry,
    define::{JobState, UnknownState},
    error::Error,
    schema::Store,
};

/// How many jobs of one queue and type are in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Count {
    /// The queue.
    pub queue: String,
    /// The job type.
    pub job_type: String,
    /// The state.
    pub state: JobState,
    /// How many; at least so many if there may be more.
    pub jobs: i64,
    /// Whether there may be more: [`counts`] counts so far and no further.
    pub partial: bool,
}

/// So many entries are counted in each state.
const COUNTED: i64 = 20_000;

/// How many jobs there are, by queue, type and state; in that order, states as in a job's life. What is stored under an alias of a type that is
/// linked into this binary is counted under the type's present name.
///
/// It answers in some ten milliseconds however many jobs there are, and says of each count whether there may be more:
///
/// - As long as no more than 20,000 jobs are ready, all of them are counted, and the same of what is scheduled, and of what is blocked. Beyond
///   that, each lane (queue, type and priority) is counted up to 20,000 jobs, or to its share of 50,000.
/// - Of dead letters the newest 20,000 are counted, of completed, cancelled and expired jobs the newest 5,000 with something to say (an output, several
///   attempts, a cancellation) and the newest 5,000 rows of others, each of one to some hundred. If there are more, they may be of any queue
///   and type: even none is then "none, or more".
///
/// [`counts_exactly`] counts all.
///
/// # Errors
/// The database's.
pub async fn counts(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Count>, Error> {
    let found = count(on, store, Some(COUNTED), None).await?;
    Ok(by_type(found.counts, &Registry::linked().unwrap_or_default()))
}

/// As [`counts`], but all jobs are counted, in one snapshot. That takes time in proportion to them, the history too: about half a second a million.
///
/// # Errors
/// The database's.
pub async fn counts_exactly(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Count>, Error> {
    let found = count(on, store, None, None).await?;
    Ok(by_type(found.counts, &Registry::linked().unwrap_or_default()))
}

/// How many jobs are in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct StateCount {
    /// The state.
    pub state: JobState,
    /// How many; at least so many if there may be more.
    pub jobs: i64,
    /// Whether there may be more.
    pub partial: bool,
}

/// The queues and types with most jobs, and all jobs by state.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Busiest {
    /// As [`counts`], of these queues and types.
    pub counts: Vec<Count>,
    /// Of all queues and types.
    pub totals: Vec<StateCount>,
    /// How many more queues and types were seen. There may be more that were not.
    pub more: i64,
}

/// So many entries are counted in each state.
const COUNTED_OF_BUSIEST: i64 = 5_000;

/// As [`counts`], of so many queues and types only: those that have most of what was seen. However many queues there are, it answers in some ten
/// milliseconds: it looks at 5,000 entries of each state, and each of these queues and types has its share of 12,500 ready jobs.
///
/// # Errors
/// The database's.
pub async fn busiest(on: impl IntoConnection<'_>, store: Store, top: u16) -> Result<Busiest, Error> {
    let mut found = count(on, store, Some(COUNTED_OF_BUSIEST), Some(i32::from(top))).await?;
    found.counts = by_type(found.counts, &Registry::linked().unwrap_or_default());
    Ok(found)
}

async fn count(on: impl IntoConnection<'_>, store: Store, most: Option<i64>, top: Option<i32>) -> Result<Busiest, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query(store.sql(include_str!("../../sql/counts.sql"))).bind(most).bind(top);
    let rows = statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))?;
    Busiest::of(&rows).map_err(|error| explain(error, store))
}

impl Busiest {
    /// Rows without a queue are of all of them; one without a state says how many are left out.
    fn of(rows: &[PgRow]) -> sqlx::Result<Self> {
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

/// One count for all names of a type.
fn by_type(found: Vec<Count>, registry: &Registry) -> Vec<Count> {
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

/// The first ready job of a queue: how far its workers are behind.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Oldest {
    /// The queue.
    pub queue: String,
    /// Since when it has been ready, by the database's clock; `None` if none was seen, though there may be one.
    pub since: Option<DateTime<Utc>>,
    /// How long that is, by the same clock.
    #[serde(rename = "waited_ms", serialize_with = "maybe_ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub waited: Option<Duration>,
    /// Whether another one may have been ready for longer; see [`oldest`].
    pub partial: bool,
}

/// The first ready job of every queue that has one, the longest wait first. Reads an entry a lane, however many jobs there are: a millisecond.
///
/// In front of it there may be entries of jobs that are gone, which stay as long as anybody holds an old snapshot. Once there are more than
/// 100,000 of those, in lanes off which jobs have gone in the last ten seconds, it begins where the workers have come. A job that was committed
/// late or given back behind them is then missed until they have found it, some seconds at the most; [`Oldest::partial`] says so. In a lane that
/// nobody works off, they are all read: about 150 ms a million.
///
/// # Errors
/// The database's.
pub async fn oldest(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Oldest>, Error> {
    waits(on, store, None).await
}

/// As [`oldest`], of so many queues only: those that wait longest.
///
/// # Errors
/// The database's.
pub async fn oldest_of(on: impl IntoConnection<'_>, store: Store, most: u16) -> Result<Vec<Oldest>, Error> {
    waits(on, store, Some(i32::from(most))).await
}

async fn waits(on: impl IntoConnection<'_>, store: Store, most: Option<i32>) -> Result<Vec<Oldest>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/oldest.sql"))).bind(most);
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// The figures of one queue.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Backlog {
    /// How many jobs are ready, counted up to what was asked for.
    pub ready: i64,
    /// Whether there may be more, and one that has been ready for longer.
    pub partial: bool,
    /// Since when the first of them has been ready, by the database's clock; `None` if none is.
    pub since: Option<DateTime<Utc>>,
    /// How long that is, by the same clock.
    #[serde(rename = "waited_ms", serialize_with = "maybe_ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub waited: Option<Duration>,
}

/// The figures of one queue, for whoever asks every few seconds: how many jobs are ready, counted up to `most`, and how long the first has
/// waited. It reads one index entry from the front and up to `most` from the back of each lane of the queue, however many jobs there are
/// and however long somebody holds a snapshot: a few milliseconds. What [`oldest`] says of entries of jobs that are gone holds here too, and
/// [`Backlog::partial`] says where that may have left something out.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let mail = queue_core::operate::backlog(&pool, queue_core::Store::default(), "mail", 10_000).await?;
/// println!("{}{} ready, the first for {:?}", mail.ready, if mail.partial { "+" } else { "" }, mail.waited.unwrap_or_default());
/// # Ok(()) }
/// ```
///
/// # Errors
/// The database's.
pub async fn backlog(on: impl IntoConnection<'_>, store: Store, queue: &str, most: u32) -> Result<Backlog, Error> {
    let mut on = on.into_connection();
    let most = i32::try_from(most).unwrap_or(i32::MAX - 1).min(i32::MAX - 1);
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/backlog.sql"))).bind(queue).bind(most);
    statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// What the database's clock says: when the transaction began, if there is one.
///
/// # Errors
/// The database's.
pub async fn now(on: impl IntoConnection<'_>, store: Store) -> Result<DateTime<Utc>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/now.sql")));
    statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// A worker, as it announced itself.
#[derive(Clone, Debug, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct WorkerRecord {
    /// Its identity, new at every start.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The machine it runs on.
    pub host: String,
    /// Its process there.
    pub pid: i32,
    /// The release of this crate in it.
    pub version: String,
    /// The queues it serves; none for any.
    pub queues: Vec<String>,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// Until when its last heartbeat is good.
    pub expires_at: DateTime<Utc>,
    /// Whether that is in the future. The jobs of a worker that is silent are recovered by others.
    pub alive: bool,
    /// How many jobs it holds.
    pub jobs: i64,
    /// How many of its slots ran a job, or a batch, at its last heartbeat; `None` if it did not say, or is silent. What looks for and runs transactional jobs has slots
    /// of its own, which are counted here and in [`slots`](Self::slots).
    pub busy: Option<i32>,
    /// How many slots it had then: of the queues that it serves, or if it serves any, of those that it has met.
    pub slots: Option<i32>,
    /// How many bytes of memory its process had then (the resident set); `None` if its system does not tell, or if it is silent.
    pub memory: Option<i64>,
}

/// Every worker that announced itself and has neither ended nor been silent for long.
///
/// # Errors
/// The database's.
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
            waited: row.try_get::<Option<f64>, _>("waited_ms")?.map(waited),
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
            waited: row.try_get::<Option<f64>, _>("waited_ms")?.map(waited),
        })
    }
}

fn waited(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(0.0) / 1000.0).unwrap_or_default()
}

#[expect(clippy::ref_option, reason = "serde gives it so")]
fn maybe_ms<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_millis() as u64).serialize(serializer)
}
