//! Pauses of a queue, a job type, or all jobs. Workers do not start jobs that a pause covers.

use std::{fmt, time::Duration};

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::rejection::explain;
use crate::{
    error::Error,
    results::{Queue, QueueConnection},
    schema::check_name,
};

/// Scope of a pause: a queue, a job type, a type in one queue, or everything.
///
/// ```
/// use queue_core::operate::Scope;
///
/// let mails = Scope::queue("mail");
/// let letters = Scope { job_type: Some("send_letter".into()), ..mails.clone() };
/// assert_eq!(letters.to_string(), "type send_letter in queue mail");
/// assert_eq!(Scope::EVERYTHING.to_string(), "everything");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Scope {
    /// Paused queue; `None` for all queues.
    pub queue: Option<String>,
    /// Paused job type; `None` for all types. The pause also covers jobs that are stored under other names of the type, such as aliases.
    /// Each worker uses the names that its own release declares.
    pub job_type: Option<String>,
}

impl Scope {
    /// Scope of every queue and every job type.
    pub const EVERYTHING: Self = Self { queue: None, job_type: None };

    /// Returns the scope of one queue.
    pub fn queue(name: impl Into<String>) -> Self {
        Self { queue: Some(name.into()), job_type: None }
    }

    /// Returns the scope of one job type, in every queue.
    pub fn job_type(name: impl Into<String>) -> Self {
        Self { queue: None, job_type: Some(name.into()) }
    }

    /// Validates the names of the scope and returns them as statement parameters: the queue, then the job type. `None` becomes [`ANY`].
    fn names(&self) -> Result<[&str; 2], Error> {
        self.queue.iter().try_for_each(|queue| check_name("queue name", queue))?;
        self.job_type.iter().try_for_each(|job_type| check_name("job type name", job_type))?;
        Ok([&self.queue, &self.job_type].map(|name| name.as_deref().unwrap_or(ANY)))
    }
}

/// Stored value that stands for all queues or all job types.
const ANY: &str = "*";

impl From<&Self> for Scope {
    fn from(scope: &Self) -> Self {
        scope.clone()
    }
}

/// Converts a queue name to the scope of the queue.
impl From<String> for Scope {
    fn from(queue: String) -> Self {
        Self::queue(queue)
    }
}

/// Converts a queue name to the scope of the queue.
impl From<&String> for Scope {
    fn from(queue: &String) -> Self {
        Self::queue(queue)
    }
}

/// Converts a queue name to the scope of the queue.
impl From<&str> for Scope {
    fn from(queue: &str) -> Self {
        Self::queue(queue)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.queue, &self.job_type) {
            (None, None) => f.write_str("everything"),
            (Some(queue), None) => write!(f, "queue {queue}"),
            (None, Some(job_type)) => write!(f, "type {job_type}"),
            (Some(queue), Some(job_type)) => write!(f, "type {job_type} in queue {queue}"),
        }
    }
}

/// Pause of a scope, with its reason and the number of waiting jobs.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for pause in Queue::new(pool).pauses().await? {
///     println!("{} paused by {}, {} jobs waiting", pause.scope, pause.paused_by, pause.ready);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Pause {
    /// Number of the pause. Later pauses have higher numbers. Pausing the scope again assigns a new number.
    pub number: i64,
    /// Scope of the pause.
    #[serde(flatten)]
    pub scope: Scope,
    /// Operator's reason for the pause, if any.
    pub reason: Option<String>,
    /// Time the pause began, according to the database clock.
    pub paused_at: DateTime<Utc>,
    /// Database role that last paused the scope.
    pub paused_by: String,
    /// Number of ready jobs that are waiting for the pause to end, counted up to [`Pause::MOST`]. If `scope` has a job type, jobs of all
    /// payload versions are counted, but not jobs stored under other names of the type, such as aliases.
    pub ready: i64,
    /// Whether more jobs are waiting than were counted.
    pub partial: bool,
    /// Number of live workers that have not acknowledged the pause and may still start jobs of the scope; see [`Queue::pause_awaits`].
    pub awaits: i64,
}

impl Pause {
    /// Maximum number of ready jobs counted per pause.
    pub const MOST: i32 = 10_000;

    /// Maximum length of a reason, in characters.
    pub const LONGEST_REASON: usize = 1000;

    /// Returns whether the pause covers jobs of the given queue that are stored under the given job type name.
    pub fn covers(&self, queue: &str, job_type: &str) -> bool {
        let is = |paused: &Option<String>, name: &str| paused.as_deref().is_none_or(|paused| paused == name);
        is(&self.scope.queue, queue) && is(&self.scope.job_type, job_type)
    }
}

/// Worker that may still start jobs of a paused scope.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Queue, operate::Scope};
///
/// let awaited = Queue::new(pool).pause_awaits(&Scope::queue("mail")).await?;
/// for worker in awaited.unwrap_or_default() {
///     println!("{} (process {} on {}) has not acknowledged the pause", worker.name, worker.pid, worker.host);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AwaitedWorker {
    /// Id of the worker.
    pub worker: Uuid,
    /// Name of the worker.
    pub name: String,
    /// Host name of the worker's machine.
    pub host: String,
    /// Process id of the worker.
    pub pid: i32,
}

impl<C: QueueConnection> Queue<C> {
    /// Pauses a scope until [`Queue::resume`] is called, and returns the number of the pause. Workers soon stop starting jobs of the
    /// scope. Jobs of the scope stay ready. Workers return claimed jobs that have not started, and no attempt is charged. Running jobs
    /// continue. A pause survives restarts of workers and servers. The pause takes effect when the caller's transaction commits. If the
    /// scope is already paused, the pause gets a new number, reason and role, but keeps its start time.
    ///
    /// This method does not wait for the workers; see [`Queue::until_paused`].
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// use queue_core::{Queue, operate::Scope};
    ///
    /// let (queue, mail) = (Queue::new(&pool), Scope::queue("mail"));
    /// queue.pause_with_reason(&mail, Some("the mail server is moving")).await?;
    /// queue.until_paused(&mail).await?;
    /// // No handler of a job in `mail` starts here.
    /// queue.resume(&mail).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid name, and [`Error::OutOfRange`] for a reason that contains NUL or has more than
    /// [`Pause::LONGEST_REASON`] characters. Returns an error if the database query fails. The query times out after waiting five seconds
    /// for another open transaction that pauses or resumes a scope.
    pub async fn pause_with_reason(&self, scope: impl Into<Scope> + Send, reason: Option<&str>) -> Result<i64, Error> {
        let scope = scope.into();
        let [queue, job_type] = scope.names()?;
        if let Some(reason) = reason {
            let length = reason.chars().count();
            if length > Pause::LONGEST_REASON || reason.contains('\0') {
                let range = "at most 1000 characters without NUL";
                return Err(Error::OutOfRange { what: "the reason of a pause", value: format!("{length} characters"), range });
            }
        }
        let statement = sqlx::query_scalar(self.store.sql(include_str!("../../sql/pause.sql"))).bind(queue).bind(job_type).bind(reason);
        statement.fetch_one(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    /// Pauses a queue, or another [`Scope`], without a reason; see [`Queue::pause_with_reason`]. If the scope is already paused, its reason
    /// is removed.
    ///
    /// ```no_run
    /// # async fn example(queue: queue_core::Queue) -> Result<(), queue_core::Error> {
    /// queue.pause("mail").await?;
    /// queue.resume("mail").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Queue::pause_with_reason`].
    pub async fn pause(&self, scope: impl Into<Scope> + Send) -> Result<i64, Error> {
        self.pause_with_reason(scope, None).await
    }

    /// Ends the pause of `scope`. Returns false if `scope` itself is not paused. Jobs that another pause covers stay paused.
    ///
    /// # Errors
    /// Returns the errors of [`Queue::pause`].
    pub async fn resume(&self, scope: impl Into<Scope> + Send) -> Result<bool, Error> {
        let scope = scope.into();
        let [queue, job_type] = scope.names()?;
        let statement = sqlx::query_scalar(self.store.sql(include_str!("../../sql/resume.sql"))).bind(queue).bind(job_type);
        statement.fetch_one(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    /// Returns all pauses, oldest first. Counts up to [`Pause::MOST`] ready jobs per pause.
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn pauses(&self) -> Result<Vec<Pause>, Error> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/paused.sql"))).bind(Pause::MOST);
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }

    /// Returns the live workers that could run jobs of the scope and have not acknowledged the pause. Returns `None` if `scope` itself is
    /// not paused. Once the list is empty, no handler of a job in the scope starts until the pause ends. Workers with an expired lease
    /// are not included, because they start no jobs and read the pauses before their next claim.
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid name, and an error if the database query fails.
    pub async fn pause_awaits(&self, scope: impl Into<Scope> + Send) -> Result<Option<Vec<AwaitedWorker>>, Error> {
        let scope = scope.into();
        let [queue, job_type] = scope.names()?;
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/pause_awaits.sql"))).bind(queue).bind(job_type);
        let found: Vec<AwaitedRow> =
            statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))?;
        let of = |row: AwaitedRow| Some(AwaitedWorker { worker: row.worker?, name: row.name?, host: row.host?, pid: row.pid? });
        Ok(found.iter().any(|row| row.is_paused).then(|| found.into_iter().filter_map(of).collect()))
    }

    /// Returns the job types of all lanes, sorted by name. Housekeeping removes unused lanes, so types without jobs are eventually omitted.
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn job_types(&self) -> Result<Vec<String>, Error> {
        let statement = sqlx::query_scalar(self.store.sql(include_str!("../../sql/job_types.sql")));
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }
}

impl Queue {
    /// Waits until all live workers have acknowledged the pause and start no more jobs of the scope. Returns false if the scope is not
    /// paused or is resumed during the wait. The transaction that paused the scope must have been committed. An unresponsive worker
    /// delays the result until the worker's lease has expired. The future can be dropped at any time, and the pause stays in effect.
    ///
    /// # Errors
    /// Returns the errors of [`Queue::pause_awaits`].
    pub async fn until_paused(&self, scope: impl Into<Scope> + Send) -> Result<bool, Error> {
        let scope = scope.into();
        loop {
            match self.pause_awaits(&scope).await? {
                None => return Ok(false),
                Some(awaited) if awaited.is_empty() => return Ok(true),
                Some(_) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }
}

/// Interval at which [`Queue::until_paused`] checks whether all workers have acknowledged the pause.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Row of `pause_awaits.sql`. All columns but the first are null if there is no pause or all workers have acknowledged it.
#[derive(FromRow)]
struct AwaitedRow {
    is_paused: bool,
    worker: Option<Uuid>,
    name: Option<String>,
    host: Option<String>,
    pid: Option<i32>,
}

impl FromRow<'_, PgRow> for Pause {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let name = |column| row.try_get::<String, _>(column).map(|name| (name != ANY).then_some(name));
        Ok(Self {
            number: row.try_get("id")?,
            scope: Scope { queue: name("queue")?, job_type: name("job_type")? },
            reason: row.try_get("reason")?,
            paused_at: row.try_get("paused_at")?,
            paused_by: row.try_get("paused_by")?,
            ready: row.try_get("ready")?,
            partial: row.try_get("partial")?,
            awaits: row.try_get("awaits")?,
        })
    }
}
