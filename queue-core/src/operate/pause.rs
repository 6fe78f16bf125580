//! What workers begin nothing of for now: a queue, a job type, everything.

use std::{fmt, time::Duration};

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::refusal::explain;
use crate::{
    connect::IntoConnection,
    error::Error,
    schema::{Store, check_name},
};

/// What is paused or resumed: a queue, a job type, a type in one queue, or everything.
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
    /// In this queue only.
    pub queue: Option<String>,
    /// Of this job type only, whichever of its names its jobs are stored under. A worker knows the names that its release knows.
    pub job_type: Option<String>,
}

impl Scope {
    /// Every queue and every type.
    pub const EVERYTHING: Self = Self { queue: None, job_type: None };

    /// One queue.
    pub fn queue(name: impl Into<String>) -> Self {
        Self { queue: Some(name.into()), job_type: None }
    }

    /// One job type, in every queue.
    pub fn job_type(name: impl Into<String>) -> Self {
        Self { queue: None, job_type: Some(name.into()) }
    }

    /// As the statements take it.
    fn names(&self) -> Result<[&str; 2], Error> {
        self.queue.iter().try_for_each(|queue| check_name("queue name", queue))?;
        self.job_type.iter().try_for_each(|job_type| check_name("job type name", job_type))?;
        Ok([&self.queue, &self.job_type].map(|name| name.as_deref().unwrap_or(ANY)))
    }
}

/// In the store: any queue, or any job type.
const ANY: &str = "*";

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

/// What is paused, why, since when, and what waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Pause {
    /// Its number: later pauses have higher ones.
    pub number: i64,
    /// What is paused.
    #[serde(flatten)]
    pub scope: Scope,
    /// Why, if that was said.
    pub reason: Option<String>,
    /// Since when, by the database's clock.
    pub paused_at: DateTime<Utc>,
    /// The role of the database that gave the last reason.
    pub paused_by: String,
    /// How many ready jobs wait for its end, stored under this name of their type and counted up to [`Pause::MOST`].
    pub ready: i64,
    /// Whether there are more.
    pub partial: bool,
    /// How many living workers may begin some of it still, for a moment; see [`pause_awaits`].
    pub awaits: i64,
}

impl Pause {
    /// So many ready jobs are counted of each.
    pub const MOST: i32 = 10_000;

    /// The longest reason, in characters.
    pub const LONGEST_REASON: usize = 1000;

    /// Whether it covers jobs of this queue that are stored under this name of their type.
    pub fn covers(&self, queue: &str, job_type: &str) -> bool {
        let is = |paused: &Option<String>, name: &str| paused.as_deref().is_none_or(|paused| paused == name);
        is(&self.scope.queue, queue) && is(&self.scope.job_type, job_type)
    }
}

/// A worker that may begin some of what is paused still.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Awaited {
    /// Its identity.
    pub worker: Uuid,
    /// Its name.
    pub name: String,
    /// The machine it runs on.
    pub host: String,
    /// Its process there.
    pub pid: i32,
}

/// Workers begin nothing of this from about now on, until [`resume`]: jobs wait as ready, and what workers have claimed and not begun goes back
/// uncharged. Running jobs go on to their ends. It outlives workers and servers, and takes effect when the caller's transaction is committed.
/// What is paused already has the new reason. Returns the pause's number.
///
/// It does not wait for the workers: [`until_paused`] does.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate::{self, Scope}};
///
/// let mail = Scope::queue("mail");
/// operate::pause(&pool, Store::default(), &mail, Some("the mail server is moving")).await?;
/// operate::until_paused(&pool, Store::default(), &mail).await?;
/// // No handler of a job in `mail` begins here.
/// operate::resume(&pool, Store::default(), &mail).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::InvalidName`]; [`Error::OutOfRange`] for a reason of more than [`Pause::LONGEST_REASON`] characters; the database's, after five seconds
/// of waiting for another transaction that pauses or resumes and stays open.
pub async fn pause(on: impl IntoConnection<'_>, store: Store, scope: &Scope, reason: Option<&str>) -> Result<i64, Error> {
    let [queue, job_type] = scope.names()?;
    if let Some(reason) = reason {
        let length = reason.chars().count();
        if length > Pause::LONGEST_REASON || reason.contains('\0') {
            let range = "at most 1000 characters without NUL";
            return Err(Error::OutOfRange { what: "the reason of a pause", value: format!("{length} characters"), range });
        }
    }
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/pause.sql"))).bind(queue).bind(job_type).bind(reason);
    let mut on = on.into_connection();
    statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Ends the pause of exactly this; false if there is none. What another pause covers stays paused by that.
///
/// # Errors
/// As [`pause`].
pub async fn resume(on: impl IntoConnection<'_>, store: Store, scope: &Scope) -> Result<bool, Error> {
    let [queue, job_type] = scope.names()?;
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/resume.sql"))).bind(queue).bind(job_type);
    let mut on = on.into_connection();
    statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// What is paused, the longest first. Counts up to [`Pause::MOST`] ready jobs of each.
///
/// # Errors
/// The database's.
pub async fn pauses(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<Pause>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/paused.sql"))).bind(Pause::MOST);
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// The living workers that could run some of what is paused and have not said yet that they begin nothing of it; `None` if exactly this is not
/// paused. Once there are none, no handler of it begins until it is resumed. A silent worker is not among them: it has fenced itself, and reads
/// the pauses before it claims again.
///
/// # Errors
/// [`Error::InvalidName`]; the database's.
pub async fn pause_awaits(on: impl IntoConnection<'_>, store: Store, scope: &Scope) -> Result<Option<Vec<Awaited>>, Error> {
    let [queue, job_type] = scope.names()?;
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/pause_awaits.sql"))).bind(queue).bind(job_type);
    let mut on = on.into_connection();
    let found: Vec<AwaitedRow> = statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))?;
    let of = |row: AwaitedRow| Some(Awaited { worker: row.worker?, name: row.name?, host: row.host?, pid: row.pid? });
    Ok(found.iter().any(|row| row.is_paused).then(|| found.into_iter().filter_map(of).collect()))
}

/// Waits until no living worker begins anything of this any more; false if it is not paused, or is resumed meanwhile. The pause must be committed.
/// A worker that does not answer holds this up until its lease has expired. It may be dropped at any time: the pause stays.
///
/// # Errors
/// As [`pause_awaits`].
pub async fn until_paused(pool: &PgPool, store: Store, scope: &Scope) -> Result<bool, Error> {
    loop {
        match pause_awaits(pool, store, scope).await? {
            None => return Ok(false),
            Some(awaited) if awaited.is_empty() => return Ok(true),
            Some(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Between two looks whether all workers have said so.
const LOOK: Duration = Duration::from_millis(50);

/// The job types of which a job was ever enqueued, by name.
///
/// # Errors
/// The database's.
pub async fn job_types(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<String>, Error> {
    let mut on = on.into_connection();
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/job_types.sql")));
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// All but the first null if no worker is awaited.
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
