//! Why a job is not running, or what came of it: the causes, the most likely first, each with what to do about it.
//!
//! The facts come from one SQL function, `queue.why`; the sentences are made here, so that the command line, a dashboard and JSON say the same.

mod facts;
mod fix;
mod says;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sqlx::{FromRow, types::Json};

use self::facts::{Facts, Look};
use super::refusal::explain;
use crate::{
    connect::{IntoConnection, JobRef},
    define::{JobId, JobState},
    error::Error,
    schema::Store,
};

/// Why a job is not running, as of one moment.
///
/// Its JSON is stable: fields and kinds are added, and none changes its meaning.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Why {
    /// The job.
    pub job: JobId,
    /// When that was looked at, by the database's clock.
    pub at: DateTime<Utc>,
    /// Where the job is; `None` if it is not there, or nobody can look.
    pub state: Option<JobState>,
    /// Its queue.
    pub queue: Option<String>,
    /// Its job type.
    pub job_type: Option<String>,
    /// The version of its payload.
    pub version: Option<i16>,
    /// Its priority.
    pub priority: Option<i16>,
    /// What keeps it from running, or what came of it, the most likely first. There is one at least.
    pub causes: Vec<Cause>,
}

/// One cause.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Cause {
    /// Which it is.
    pub kind: CauseKind,
    /// A sentence for people, on one line. It may quote what others have written (errors, reasons, names): make that inert where it is shown.
    pub says: String,
    /// What to do about it: a command, a statement of SQL, or advice; `None` if there is nothing to be done.
    pub fix: Option<String>,
    /// What the sentence was made of, by name; `docs/WHY.md` says which there are. Ids of jobs are strings.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, serde_json::Value>))]
    pub facts: Map<String, Value>,
}

/// What a cause is. In JSON and SQL `no_such_job` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub enum CauseKind {
    /// The job is not there: never enqueued here, not committed yet, or over and not kept.
    NoSuchJob,
    /// A session has tables of the store to itself, and whoever reads them would wait.
    TableLocked,
    /// It has completed.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// It had not begun in time.
    Expired,
    /// It is a dead letter.
    Dead,
    /// It runs, or a worker is about to begin it.
    Running,
    /// It runs, and was told to end.
    Cancelling,
    /// The worker that has it is silent: others take it back.
    SilentWorker,
    /// A session has the lease locked that it is in: neither its verdict nor its recovery can be written.
    LeaseLocked,
    /// Its time has not come: it is to run later, is tried again later, or put itself off.
    Scheduled,
    /// It waits for a signal.
    Parked,
    /// Its time has come; workers are about to make it ready.
    Due,
    /// Another job of its ordering key goes first.
    Blocked,
    /// It waits in the line of its ordering key, and no job of that is under way: workers are about to let the first go on.
    KeyFree,
    /// The time until which it may begin has passed.
    PastExpiry,
    /// No worker lives.
    NoWorker,
    /// Workers live, and none of them serves it.
    Unserved,
    /// It is paused.
    Paused,
    /// A limit that covers it waits until every worker knows it.
    LimitUnknown,
    /// A session has a limit that covers it locked.
    LimitLocked,
    /// A limit that covers it has no room.
    Limited,
    /// A session has its entry locked: claims pass over it.
    Locked,
    /// Processes have ended while they ran it: it is tried apart from other jobs.
    Suspect,
    /// Jobs of higher priority go first.
    Starved,
    /// Other jobs stand before it.
    Behind,
    /// The workers that serve it are at work on other jobs of its queue.
    WorkersBusy,
    /// Nothing is in its way.
    Nothing,
    /// A long transaction keeps vacuum from cleaning up. That alone keeps no job from running.
    OldSnapshot,
    /// What a newer store says that this release does not know.
    #[serde(other)]
    Other,
}

impl Why {
    /// The most likely cause.
    ///
    /// # Panics
    /// When somebody has taken all causes out.
    pub fn first(&self) -> &Cause {
        self.causes.first().expect("`why` makes none without a cause")
    }

    /// Whether there is no such job.
    pub fn is_absent(&self) -> bool {
        self.first().kind == CauseKind::NoSuchJob
    }
}

impl JobRef {
    /// Why the job is not running, or what came of it: see [`why()`].
    ///
    /// # Errors
    /// The database's.
    pub async fn why(&self, on: impl IntoConnection<'_>) -> Result<Why, Error> {
        why(on, self.store(), self.id()).await
    }
}

/// A row of `queue.why`.
#[derive(FromRow)]
struct Row {
    kind: String,
    says: String,
    facts: Json<Map<String, Value>>,
    job: Option<Json<Map<String, Value>>>,
    at: DateTime<Utc>,
}

/// Why this job is not running: no worker serves it, it is paused, a limit has no room, another job of its key goes first, somebody has it locked, it
/// waits for its time, others stand before it; or who runs it, or what came of it. A job that is not there is an answer as well.
///
/// It only reads, waits for nobody, and costs the same whatever waits or is over. Of other sessions it says what the role that asks may see.
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
/// The database's.
pub async fn why(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<Why, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/why.sql"))).bind(job);
    let rows: Vec<Row> = statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))?;
    let Some(first) = rows.first() else { return Err(Error::NotFound { job }) };
    let (at, of_job) = (first.at, first.job.as_ref().map(|job| Facts(&job.0)));
    let text = |name| of_job.and_then(|job| job.text(name)).map(str::to_owned);
    let number = |name| of_job.and_then(|job| job.number(name)).and_then(|number| i16::try_from(number).ok());
    let state: Option<JobState> = of_job.and_then(|job| job.text("state")).and_then(|state| state.parse().ok());
    let look = Look { store, job, at, state, of_job };
    Ok(Why {
        job,
        at,
        state,
        queue: text("queue"),
        job_type: text("job_type"),
        version: number("version"),
        priority: number("priority"),
        causes: rows.iter().map(|row| cause(row, &look)).collect(),
    })
}

fn cause(row: &Row, look: &Look<'_>) -> Cause {
    let kind = serde_json::from_value(Value::from(row.kind.as_str())).unwrap_or(CauseKind::Other);
    let facts = Facts(&row.facts.0);
    let says = says::says(kind, facts, look).unwrap_or_else(|| row.says.clone());
    Cause { kind, says, fix: fix::fix(kind, facts, look), facts: row.facts.0.clone() }
}
