//! Explanation of why a job is not running, or of its outcome: causes, most likely first, each with a fix.
//!
//! The facts come from one SQL function, `queue.why`. The sentences are built here, so that the command line, dashboards and JSON agree.

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
    schema::Store,
};

/// Explanation of why a job is not running, as of one moment.
///
/// Its JSON is stable: fields and kinds may be added, and none changes its meaning.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Why {
    /// Id of the job.
    pub job: JobId,
    /// Time of the query, by the database's clock.
    pub at: DateTime<Utc>,
    /// State of the job; `None` if it does not exist or cannot be read.
    pub state: Option<JobState>,
    /// Queue.
    pub queue: Option<String>,
    /// Job type.
    pub job_type: Option<String>,
    /// Version of the payload.
    pub version: Option<i16>,
    /// Priority.
    pub priority: Option<i16>,
    /// Reasons why it does not run, or its outcome, most likely first. Never empty.
    pub causes: Vec<Cause>,
}

/// Cause of why a job is not running.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Cause {
    /// Kind of the cause.
    pub kind: CauseKind,
    /// Description for people, on one line. It may quote untrusted text (errors, reasons, names): escape it for display.
    pub says: String,
    /// Fix: a command, an SQL statement, or advice; `None` if nothing needs to be done.
    pub fix: Option<String>,
    /// Facts behind the description, by name, as listed in `docs/WHY.md`. Job ids are strings.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, serde_json::Value>))]
    pub facts: Map<String, Value>,
}

/// Kind of a cause. In JSON and SQL `no_such_job` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub enum CauseKind {
    /// The job does not exist: never enqueued here, not committed yet, or finished and not kept.
    NoSuchJob,
    /// A session holds an exclusive lock on tables of the store, and readers would wait.
    TableLocked,
    /// It has completed.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// It expired, because no attempt started in time.
    Expired,
    /// It is a dead letter.
    Dead,
    /// It is running, or a worker is about to start it.
    Running,
    /// It is running, and its cancellation was requested.
    Cancelling,
    /// The worker that has it is silent. Other workers recover the job.
    SilentWorker,
    /// A session has its lease locked: neither its verdict nor its recovery can be written.
    LeaseLocked,
    /// It is not due yet: it is scheduled for later, waits for a retry, or was snoozed.
    Scheduled,
    /// It waits for a signal.
    Parked,
    /// It is due, and a worker is about to make it ready.
    Due,
    /// Another job of its ordering key goes first.
    Blocked,
    /// It is queued in its ordering key, which has no active job. A worker is about to release the first one.
    KeyFree,
    /// The time until which it may start has passed.
    PastExpiry,
    /// No worker is alive.
    NoWorker,
    /// Workers are alive, but none of them serves it.
    Unserved,
    /// It is paused.
    Paused,
    /// A limit that covers it waits until every worker knows the limit.
    LimitUnknown,
    /// A session has a limit that covers it locked.
    LimitLocked,
    /// A limit that covers it has no free permit.
    Limited,
    /// A session has its row locked, and claims skip it.
    Locked,
    /// Processes have crashed while they ran it. It is retried apart from other jobs.
    Suspect,
    /// Jobs of higher priority go first.
    Starved,
    /// Other jobs are queued before it.
    Behind,
    /// The workers that serve it are busy with other jobs of its queue.
    WorkersBusy,
    /// Nothing is known to block it.
    Nothing,
    /// A long transaction prevents vacuum from cleaning up. That alone keeps no job from running.
    OldSnapshot,
    /// Kind of a newer store that this release does not know.
    #[serde(other)]
    Other,
}

impl Why {
    /// Returns the most likely cause.
    ///
    /// # Panics
    /// If all causes were removed.
    pub fn first(&self) -> &Cause {
        self.causes.first().expect("`why` always returns a cause")
    }

    /// Returns whether the job does not exist.
    pub fn is_absent(&self) -> bool {
        self.first().kind == CauseKind::NoSuchJob
    }
}

impl JobRef {
    /// Explains why the job is not running, or its outcome: see [`why()`].
    ///
    /// # Errors
    /// Database errors.
    pub async fn why(&self, on: impl IntoConnection<'_>) -> Result<Why, Error> {
        why(on, self.store(), self.id()).await
    }
}

/// Row of `queue.why`.
#[derive(FromRow)]
struct WhyRow {
    kind: String,
    says: String,
    facts: Json<Map<String, Value>>,
    job: Option<Json<Map<String, Value>>>,
    at: DateTime<Utc>,
}

/// Explains why this job is not running: no worker serves it, it is paused, a limit has no permit, another job of its key goes first, a
/// session has it locked, it is not due, or others are queued before it. For a running or finished job it returns the worker or the
/// outcome. A job that does not exist is not an error, but a cause.
///
/// It only reads, waits for no lock, and its cost does not depend on the number of waiting or finished jobs. It shows of other sessions
/// what the calling role may see.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, id: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate};
///
/// let why = operate::why(&pool, Store::default(), id).await?;
/// println!("{}", why.first().says);
/// for cause in &why.causes {
///     println!("{:?}: {}", cause.kind, cause.fix.as_deref().unwrap_or("wait"));
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// Database errors.
pub async fn why(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<Why, Error> {
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

fn build_cause(row: &WhyRow, context: &WhyContext<'_>) -> Cause {
    let kind = serde_json::from_value(Value::from(row.kind.as_str())).unwrap_or(CauseKind::Other);
    let facts = Facts(&row.facts.0);
    let says = description::describe(kind, facts, context).unwrap_or_else(|| row.says.clone());
    Cause { kind, says, fix: fix::find_fix(kind, facts, context), facts: row.facts.0.clone() }
}
