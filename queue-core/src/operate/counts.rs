//! Statistics of a store: job counts by queue, type and state, longest waiting times, and workers.

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
    context::Registry,
    define::{JobState, UnknownState},
    error::Error,
    results::{Queue, QueueConnection},
};

/// Number of jobs of one queue and type in one state.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for count in Queue::new(pool).counts().await? {
///     println!("{} {} {}: {}", count.queue, count.job_type, count.state, count.jobs);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Count {
    /// Name of the queue.
    pub queue: String,
    /// Name of the jobs' type.
    pub job_type: String,
    /// State of the jobs.
    pub state: JobState,
    /// Number of jobs; a lower bound if `partial` is set.
    pub jobs: i64,
    /// Whether `jobs` may be too low, because [`Queue::counts`] stops counting at a limit.
    pub partial: bool,
}

/// Row limit per state that [`Queue::counts`] passes to the SQL function `queue.counts`.
const MAX_COUNTED: i64 = 20_000;

impl<C: QueueConnection> Queue<C> {
    /// Returns the number of jobs by queue, type and state, sorted by queue, type and life-cycle order of the states. If a job type is
    /// linked into this binary, jobs stored under one of its aliases are counted under its current name.
    ///
    /// Takes about ten milliseconds regardless of the number of jobs. [`Count::partial`] marks counts that may be too low:
    ///
    /// - Ready, scheduled, blocked and parked jobs are all counted if their state has at most 20,000 jobs. Otherwise, each combination of
    ///   queue, type and priority is counted up to an equal share of 50,000 jobs, but not beyond 20,000.
    /// - Running jobs in up to 20,000 leases are counted. In leases that mix queues, types or priorities, up to 5,000 jobs are counted.
    /// - The newest 20,000 dead letters are counted.
    /// - The newest 5,000 completed, cancelled and expired jobs with details are counted. Details are, for example, an output, several
    ///   attempts or a cancellation. The newest 5,000 rows of completed jobs without details are counted as well. Each such row
    ///   represents between one and a few hundred jobs.
    /// - A partial count may be 0 although there are jobs, because the jobs that were not counted may belong to any queue and type.
    ///
    /// [`Queue::counts_exactly`] counts all jobs.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn counts(&self) -> Result<Vec<Count>, Error> {
        let found = self.query_counts(Some(MAX_COUNTED), None).await?;
        Ok(merge_aliases(found.counts, &Registry::linked().unwrap_or_default()))
    }

    /// Returns the same as [`Queue::counts`], but counts all jobs in one snapshot. Takes about half a second per million jobs, including
    /// the history.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn counts_exactly(&self) -> Result<Vec<Count>, Error> {
        let found = self.query_counts(None, None).await?;
        Ok(merge_aliases(found.counts, &Registry::linked().unwrap_or_default()))
    }

    /// Returns job counts as [`Queue::counts`] does, but only for the `top` combinations of queue and type with the most unfinished jobs.
    /// Takes about ten milliseconds regardless of the number of queues. Reads up to 5,000 table rows per state. If a state of waiting
    /// jobs has more rows, each lane of the returned combinations is counted up to an equal share of 12,500 jobs.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn busiest(&self, top: u16) -> Result<Busiest, Error> {
        let mut found = self.query_counts(Some(MAX_COUNTED_BUSIEST), Some(i32::from(top))).await?;
        found.counts = merge_aliases(found.counts, &Registry::linked().unwrap_or_default());
        Ok(found)
    }

    /// Returns the longest-waiting ready job of every queue with ready jobs, longest wait first. Reads one index entry per lane, which
    /// takes about a millisecond.
    ///
    /// Dead index entries of deleted jobs may precede the entry of the longest-waiting job. Dead entries remain while any session holds
    /// an old snapshot. If more than 100,000 entries are dead, the read of a lane starts at the position of the newest job that has
    /// finished in the last ten seconds, if any. Lower positions are skipped, although they may contain released jobs and jobs whose
    /// enqueue was committed late, and [`Oldest::partial`] is set. Workers find such jobs within seconds. In a lane that no worker serves,
    /// all dead entries are read, which takes about 150 ms per million entries.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn oldest(&self) -> Result<Vec<Oldest>, Error> {
        self.query_oldest(None).await
    }

    /// Returns the same as [`Queue::oldest`], but only for the `most` queues with the longest waits.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn oldest_of(&self, most: u16) -> Result<Vec<Oldest>, Error> {
        self.query_oldest(Some(i32::from(most))).await
    }

    /// Returns the backlog of one queue: the number of ready jobs, counted up to `most`, and the longest waiting time. Suitable for polling
    /// every few seconds, for example by an autoscaler. Reads one index entry from the front of each lane and up to `most` entries from the
    /// back. Takes a few milliseconds regardless of the number of jobs and the age of the oldest snapshot. Dead entries limit the accuracy
    /// as described for [`Queue::oldest`]. [`Backlog::partial`] is set if there may be more ready jobs, for this reason or because the
    /// count is limited to `most`.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// let mail = queue_core::Queue::new(&pool).backlog("mail", 10_000).await?;
    /// println!("{}{} ready, the first for {:?}", mail.ready, if mail.partial { "+" } else { "" }, mail.waited.unwrap_or_default());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn backlog(&self, queue: &str, most: u32) -> Result<Backlog, Error> {
        let most = i32::try_from(most).unwrap_or(i32::MAX - 1).min(i32::MAX - 1);
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/backlog.sql"))).bind(queue).bind(most);
        statement.fetch_one(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    /// Returns the database's current time. In a transaction, returns the start time of the transaction.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn now(&self) -> Result<DateTime<Utc>, Error> {
        let statement = sqlx::query_scalar(self.store.sql(include_str!("../../sql/now.sql")));
        statement.fetch_one(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    /// Returns the registered workers. A worker is removed when it shuts down, when other workers have recovered its jobs, or an hour after
    /// its heartbeat has expired.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn workers(&self) -> Result<Vec<WorkerRecord>, Error> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/workers.sql")));
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    async fn query_counts(&self, most: Option<i64>, top: Option<i32>) -> Result<Busiest, Error> {
        let statement = sqlx::query(self.store.sql(include_str!("../../sql/counts.sql"))).bind(most).bind(top);
        let rows = statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))?;
        Busiest::from_rows(&rows).map_err(|error| explain(error, self.store))
    }

    async fn query_oldest(&self, most: Option<i32>) -> Result<Vec<Oldest>, Error> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/oldest.sql"))).bind(most);
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }
}

/// Total number of jobs in one state.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for total in Queue::new(pool).busiest(10).await?.totals {
///     println!("{}{} jobs are {}", total.jobs, if total.partial { "+" } else { "" }, total.state);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct StateCount {
    /// State of the jobs.
    pub state: JobState,
    /// Number of jobs; a lower bound if `partial` is set.
    pub jobs: i64,
    /// Whether `jobs` may be too low, because [`Queue::busiest`] stops counting at a limit.
    pub partial: bool,
}

/// Job counts for the queues and types with the most unfinished jobs, and totals by state.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// let busiest = Queue::new(pool).busiest(10).await?;
/// println!("{} counts, {} queues and types omitted", busiest.counts.len(), busiest.more);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Busiest {
    /// Job counts for the busiest queues and types, as returned by [`Queue::counts`].
    pub counts: Vec<Count>,
    /// Totals by state, over all queues and types.
    pub totals: Vec<StateCount>,
    /// Number of combinations of queue and type that were counted but omitted from `counts`. The scan may have missed other combinations.
    pub more: i64,
}

/// Row limit per state that [`Queue::busiest`] passes to the SQL function `queue.counts`.
const MAX_COUNTED_BUSIEST: i64 = 5_000;

impl Busiest {
    /// Converts the rows of `counts.sql`. A row without a queue is a total over all queues. A row without a state contains the number of
    /// omitted combinations of queue and type.
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

/// Merges the counts of a job type's aliases into the count of its current name.
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

/// Longest-waiting ready job of a queue. Its waiting time shows how far the queue's workers lag behind.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for oldest in Queue::new(pool).oldest().await? {
///     println!("{}: waiting for {:?}", oldest.queue, oldest.waited.unwrap_or_default());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Oldest {
    /// Name of the queue.
    pub queue: String,
    /// Time the job became ready, according to the database clock. `None` if the query found no ready job. The query may have skipped the
    /// lower positions of a lane, so a ready job may exist even then; see [`Queue::oldest`].
    pub since: Option<DateTime<Utc>>,
    /// Waiting time of the job, according to the database clock. `None` if [`since`](Self::since) is `None`. Serialized as `waited_ms`, in
    /// milliseconds.
    #[serde(rename = "waited_ms", serialize_with = "serialize_ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub waited: Option<Duration>,
    /// Whether another job may have been waiting longer; see [`Queue::oldest`].
    pub partial: bool,
}

/// Number of ready jobs in one queue, and the longest waiting time.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// let backlog = Queue::new(pool).backlog("mail", 1000).await?;
/// println!("{} jobs are ready, the first for {:?}", backlog.ready, backlog.waited.unwrap_or_default());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Backlog {
    /// Number of ready jobs, counted up to the requested maximum.
    pub ready: i64,
    /// Whether `ready` may be too low. If true, a job that was not counted may have been waiting longer than `waited`.
    pub partial: bool,
    /// Time the longest-waiting job became ready, according to the database clock. `None` if no ready job was found. If
    /// [`partial`](Self::partial) is set, a ready job may exist even then.
    pub since: Option<DateTime<Utc>>,
    /// Waiting time of the longest-waiting job, according to the database clock. `None` if [`since`](Self::since) is `None`. Serialized as
    /// `waited_ms`, in milliseconds.
    #[serde(rename = "waited_ms", serialize_with = "serialize_ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub waited: Option<Duration>,
}

/// Worker that is registered in the store.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for worker in Queue::new(pool).workers().await?.iter().filter(|worker| !worker.alive) {
///     println!("{} on {} is silent and holds {} jobs", worker.name, worker.host, worker.jobs);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct WorkerRecord {
    /// Id of the worker. A worker gets a new id at every start, and whenever it registers again, for example after its heartbeat
    /// has expired.
    pub id: Uuid,
    /// Name of the worker.
    pub name: String,
    /// Host name of the worker's machine.
    pub host: String,
    /// Process id of the worker.
    pub pid: i32,
    /// Version of the crate `queue-worker` that the worker uses.
    pub version: String,
    /// Queues that the worker serves; empty if the worker serves all queues.
    pub queues: Vec<String>,
    /// Start time of the worker.
    pub started_at: DateTime<Utc>,
    /// Expiry time of the worker's last heartbeat.
    pub expires_at: DateTime<Utc>,
    /// Whether the last heartbeat is still valid. After it has expired, other workers recover the worker's jobs.
    pub alive: bool,
    /// Number of jobs in the worker's leases.
    pub jobs: i64,
    /// Number of slots that were running a job or a batch at the last heartbeat. `None` if the heartbeat has expired or did not report
    /// the number. Transactional jobs have separate slots, which are counted here and in [`slots`](Self::slots).
    pub busy: Option<i32>,
    /// Number of slots at the last heartbeat, over the queues that the worker serves. A worker that serves all queues counts the queues
    /// that it has encountered. `None` if the worker has not reported the number.
    pub slots: Option<i32>,
    /// Resident memory of the process at the last heartbeat, in bytes. `None` if the heartbeat has expired or the operating system does
    /// not report the memory.
    pub memory: Option<i64>,
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
