//! Explains why a job is not running, or how it ended. The explanation is a list of causes with fixes, most likely cause first.
//!
//! The facts come from the SQL function `queue.why`. This module builds the sentences, so the command line, dashboards and JSON contain
//! the same text.

mod facts;
mod fix;
mod description;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sqlx::{FromRow, types::Json};

use self::facts::{Facts, WhyContext};
use super::rejection::explain;
use crate::{
    connect::{IntoConnection, JobRef},
    define::{JobId, JobState},
    error::Error,
    results::{QueueConnection, QueueJob},
};

/// Explanation of why a job is not running, at the time of the query.
///
/// The JSON form is stable. Later releases may add fields and kinds, but existing fields and kinds keep their meaning.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// let why = queue_core::Queue::new(pool).job(job).why().await?;
/// if why.is_absent() {
///     println!("there is no job {}", why.job);
/// } else {
///     println!("{:?}: {}", why.state, why.first().message);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Why {
    /// Id of the job.
    pub job: JobId,
    /// Time of the query, according to the database clock.
    pub at: DateTime<Utc>,
    /// State of the job; `None` if the job does not exist or cannot be read.
    pub state: Option<JobState>,
    /// Name of the job's queue; `None` if the job does not exist or cannot be read.
    pub queue: Option<String>,
    /// Name of the job's type; `None` if the job does not exist or cannot be read.
    pub job_type: Option<String>,
    /// Version of the job's payload; `None` if the job does not exist or cannot be read.
    pub version: Option<i16>,
    /// Priority of the job; `None` if the job does not exist or cannot be read.
    pub priority: Option<i16>,
    /// Causes that keep the job from running, most likely cause first, or the outcome of a finished job. Never empty.
    pub causes: Vec<Cause>,
}

/// Cause that keeps a job from running, with a description and a fix.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// for cause in queue_core::Queue::new(pool).job(job).why().await?.causes {
///     println!("{}; fix: {}", cause.message, cause.fix.as_deref().unwrap_or("none"));
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Cause {
    /// Kind of the cause, for use by programs.
    pub kind: CauseKind,
    /// One-line description for people. May quote untrusted text, such as errors, reasons and names, which must be escaped for display.
    pub message: String,
    /// Fix: a command, an SQL statement, or advice; `None` if nothing needs to be done.
    pub fix: Option<String>,
    /// Facts on which the description is based, keyed by the names listed in `docs/WHY.md`. Job ids are strings.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, serde_json::Value>))]
    pub facts: Map<String, Value>,
}

/// Kind of a cause. JSON and SQL use snake case, such as `no_such_job`.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::operate::CauseKind;
///
/// match queue_core::Queue::new(pool).job(job).why().await?.first().kind {
///     CauseKind::NoWorker | CauseKind::Unserved => println!("start a worker"),
///     CauseKind::Paused => println!("end the pause"),
///     kind => println!("{kind:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub enum CauseKind {
    /// The job does not exist. Possible reasons: the job was never enqueued in this store, is not committed yet, or has finished and was
    /// not kept.
    NoSuchJob,
    /// A session holds or awaits an exclusive lock on tables of the store. The other causes are unknown, because queries on these tables
    /// would wait for the lock.
    TableLocked,
    /// The job has completed.
    Completed,
    /// The job was cancelled.
    Cancelled,
    /// The job expired because no attempt started in time.
    Expired,
    /// The job is a dead letter.
    Dead,
    /// The job is running, or a worker is about to start it.
    Running,
    /// The job is running, and its cancellation has been requested.
    Cancelling,
    /// The worker that holds the job's lease has stopped sending heartbeats. Another worker recovers the job.
    SilentWorker,
    /// A session has locked the job's lease. Until the lock is released, neither a verdict nor a recovery can be written.
    LeaseLocked,
    /// The job is not due yet, because the job is scheduled, is waiting for a retry, or was snoozed.
    Scheduled,
    /// The job is parked: it is waiting for a signal, for its turn in a map, or for other jobs (children, map jobs or flow nodes).
    Parked,
    /// The job is due, and a worker is about to make it ready.
    Due,
    /// Another job with the same ordering key runs first.
    Blocked,
    /// The job is blocked under an ordering key without an active job. A worker is about to unblock the first job of the key.
    KeyFree,
    /// The expiry time of the job has passed, so the job must not start.
    PastExpiry,
    /// There is no live worker.
    NoWorker,
    /// There are live workers, but no worker serves the job.
    Unserved,
    /// A pause covers the job.
    Paused,
    /// Not all workers have acknowledged a limit that covers the job. No job starts under the limit until all workers have acknowledged it.
    LimitUnknown,
    /// A session has locked a limit that covers the job.
    LimitLocked,
    /// A limit that covers the job has no free permit.
    Limited,
    /// A session has locked the job's row, so claims skip the job.
    Locked,
    /// Processes have crashed while running the job. The job is quarantined and runs apart from other jobs.
    Suspect,
    /// Jobs of higher priority are claimed first.
    Starved,
    /// Other jobs precede the job in its lane, or under its fairness key.
    Behind,
    /// The workers that serve the job are busy with other jobs of the same queue.
    WorkersBusy,
    /// No known cause keeps the job from running.
    Nothing,
    /// A long transaction prevents vacuum from removing dead rows. The transaction itself does not keep jobs from running.
    OldSnapshot,
    /// Kind of cause that this release does not know, returned by a newer store.
    #[serde(other)]
    Other,
}

impl Why {
    /// Returns the most likely cause.
    ///
    /// # Panics
    /// Panics if the caller has removed all causes.
    pub fn first(&self) -> &Cause {
        self.causes.first().expect("`why` always returns a cause")
    }

    /// Returns whether the job does not exist.
    pub fn is_absent(&self) -> bool {
        self.first().kind == CauseKind::NoSuchJob
    }
}

/// Row returned by `why.sql`, with one cause.
#[derive(FromRow)]
struct WhyRow {
    kind: String,
    message: String,
    facts: Json<Map<String, Value>>,
    job: Option<Json<Map<String, Value>>>,
    at: DateTime<Utc>,
}

impl JobRef {
    /// Explains why a job is not running, for example because no worker serves it or a limit has no free permit. [`CauseKind`] lists all
    /// causes. For a running job, the explanation names the worker. For a finished job, the explanation names the outcome. A job that does
    /// not exist is reported as a cause, not as an error.
    ///
    /// The query is read-only and waits at most 200 ms for a lock. The cost does not depend on the number of waiting or finished jobs.
    /// Information about other sessions is limited by the privileges of the calling role.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool, id: queue_core::JobId) -> Result<(), queue_core::Error> {
    /// use queue_core::Queue;
    ///
    /// let why = Queue::new(&pool).job(id).why().await?;
    /// println!("{}", why.first().message);
    /// for cause in &why.causes {
    ///     println!("{:?}: {}", cause.kind, cause.fix.as_deref().unwrap_or("wait"));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn why(&self, on: impl IntoConnection<'_>) -> Result<Why, Error> {
        let (job, store) = (self.id(), self.store());
        let mut on = on.into_connection();
        let statement = sqlx::query_as(store.sql(include_str!("../../sql/why.sql"))).bind(job);
        let rows: Vec<WhyRow> = statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))?;
        let Some(first) = rows.first() else { return Err(Error::NotFound { job }) };
        let (at, job_facts) = (first.at, first.job.as_ref().map(|job| Facts(&job.0)));
        let text = |name| job_facts.and_then(|job| job.text(name)).map(str::to_owned);
        let number = |name| job_facts.and_then(|job| job.number(name)).and_then(|number| i16::try_from(number).ok());
        let state: Option<JobState> = job_facts.and_then(|job| job.text("state")).and_then(|state| state.parse().ok());
        let context = WhyContext { store, job, at, state, job_facts };
        Ok(Why {
            job,
            at,
            state,
            queue: text("queue"),
            job_type: text("job_type"),
            version: number("version"),
            priority: number("priority"),
            causes: rows.iter().map(|row| build_cause(row, &context)).collect(),
        })
    }
}

impl<C: QueueConnection> QueueJob<'_, C> {
    /// Explains why the job is not running, or returns the job's outcome; see [`JobRef::why`].
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn why(&self) -> Result<Why, Error> {
        self.job_ref().why(self.queue.lend().await).await
    }
}

fn build_cause(row: &WhyRow, context: &WhyContext<'_>) -> Cause {
    let kind = serde_json::from_value(Value::from(row.kind.as_str())).unwrap_or(CauseKind::Other);
    let facts = Facts(&row.facts.0);
    let message = description::describe(kind, facts, context).unwrap_or_else(|| row.message.clone());
    Cause { kind, message, fix: fix::find_fix(kind, facts, context), facts: row.facts.0.clone() }
}
