//! Test support for producers: finds the waiting jobs of a job type, optionally only those whose payload matches a pattern.

use std::{
    any::type_name,
    fmt::{Debug, Write as _},
    ops::Deref,
};

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::Error;
use crate::{
    connect::IntoConnection,
    context::read_meta,
    define::{JobId, JobState, JobType, OldPayload, SystemAttributes},
    enqueue::store_error,
    schema::Store,
    seal::{self, OpenError, SealScope},
};

/// Waiting job whose payload is decoded as `T`.
///
/// ```no_run
/// # use queue_core::{Job, job, testing};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), testing::Error> {
/// let mut tx = pool.begin().await?;
/// Email { to: "ada@example.org".into() }.enqueue(&mut tx).await?;
/// let emails = testing::enqueued_jobs::<Email>(&mut tx).await?;
/// assert_eq!((emails[0].to.as_str(), emails[0].queue.as_str()), ("ada@example.org", "default"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EnqueuedJob<T> {
    /// Payload of the job, decoded from its stored form.
    pub job: T,
    /// Id of the job.
    pub id: JobId,
    /// Queue of the job.
    pub queue: String,
    /// Priority of the job.
    pub priority: i16,
    /// Metadata of the job.
    pub meta: Map<String, Value>,
    /// State of the job: ready, scheduled or blocked.
    pub state: JobState,
    /// Due time, if the job is scheduled.
    pub run_at: Option<DateTime<Utc>>,
    /// Time after which the job must not start; `None` if the job does not expire.
    pub expires_at: Option<DateTime<Utc>>,
    /// Maximum number of attempts.
    pub max_attempts: i16,
    /// Number of attempts so far.
    pub attempts: i16,
}

impl<T> Deref for EnqueuedJob<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.job
    }
}

/// Returns the payloads of all ready, scheduled and blocked jobs of type `T`, in the order in which they were enqueued. In a transaction,
/// the result includes jobs that the transaction has enqueued.
///
/// # Errors
/// Returns an error if the database query fails, or if a payload of the job type cannot be decoded as `T`.
pub async fn enqueued<'c, T: JobType>(on: impl IntoConnection<'c>) -> Result<Vec<T>, Error> {
    Ok(enqueued_jobs::<T>(on).await?.into_iter().map(|found| found.job).collect())
}

/// Returns the jobs whose payloads [`enqueued`] returns, with their queue, priority, state and other properties.
///
/// # Errors
/// Returns the errors of [`enqueued`].
pub async fn enqueued_jobs<'c, T: JobType>(on: impl IntoConnection<'c>) -> Result<Vec<EnqueuedJob<T>>, Error> {
    Ok(WaitingJobs::query(on).await?.found)
}

/// Waiting jobs that an assertion inspects.
#[doc(hidden)]
#[derive(Debug)]
pub struct WaitingJobs<T> {
    pub found: Vec<EnqueuedJob<T>>,
    waiting: Vec<(String, i64)>,
}

impl<T: JobType> WaitingJobs<T> {
    pub async fn query<'c>(on: impl IntoConnection<'c>) -> Result<Self, Error> {
        Self::on(&mut *on.into_connection().into_session().await?).await
    }

    async fn on(on: &mut PgConnection) -> Result<Self, Error> {
        let store = Store::default();
        let names: Vec<&str> = std::iter::once(T::OPTIONS.name).chain(T::OPTIONS.aliases.iter().copied()).collect();
        let find = sqlx::query(store.sql(include_str!("../../testing/found.sql"))).bind(names);
        let rows = find.fetch_all(&mut *on).await.map_err(|error| store_error(error, store))?;
        let found = rows.iter().map(read).collect::<Result<_, _>>()?;
        let waiting = sqlx::query_as(store.sql(include_str!("../../testing/waiting.sql"))).fetch_all(&mut *on).await?;
        Ok(Self { found, waiting })
    }

    /// Returns the message of a failed assertion. `shown` contains the formatted payloads if their type implements `Debug`.
    #[doc(hidden)]
    pub fn explain(&self, what: &str, shown: &[Option<String>]) -> String {
        let mut text = format!("{what}; waiting jobs of type `{}`: {}", T::OPTIONS.name, self.found.len());
        for (found, shown) in self.found.iter().zip(shown) {
            let payload = shown.as_deref().unwrap_or("(derive `Debug` to see its payload)");
            // Writing to a `String` does not fail.
            let _ = write!(text, "\n  {} {} in {}: {payload}", found.id, found.state, found.queue);
        }
        let waiting: Vec<String> = self.waiting.iter().map(|(job_type, jobs)| format!("{jobs} {job_type}")).collect();
        let waiting = if waiting.is_empty() { "none".to_owned() } else { waiting.join(", ") };
        format!("{text}\nall waiting jobs: {waiting}")
    }
}

fn read<T: JobType>(row: &PgRow) -> Result<EnqueuedJob<T>, Error> {
    let (id, payload, state): (JobId, String, String) = (row.try_get("id")?, row.try_get("payload")?, row.try_get("state")?);
    let version = row.try_get::<i16, _>("version")?.unsigned_abs();
    let payload = if T::OPTIONS.seal.is_some() { open(id, payload, row.try_get("job_type")?, version)? } else { payload };
    let wrong = |error: serde_json::Error| Error::Payload { job: id, rust_type: type_name::<T>(), column: error.column() };
    let job = if version < T::OPTIONS.version {
        T::upgrade(OldPayload::new(version, &payload)).map_err(|_| Error::Payload { job: id, rust_type: type_name::<T>(), column: 0 })?
    } else {
        T::from_serde(serde_json::from_str(&payload).map_err(wrong)?)
    };
    Ok(EnqueuedJob {
        job,
        id,
        queue: row.try_get("queue")?,
        priority: row.try_get("priority")?,
        meta: read_meta(row.try_get("meta")?),
        // Parsing does not fail, because the statement selects only three known states.
        state: state.parse().unwrap_or(JobState::Ready),
        run_at: row.try_get("run_at")?,
        expires_at: SystemAttributes::parse(row.try_get("system")?).expires_at(),
        max_attempts: row.try_get("max_attempts")?,
        attempts: row.try_get("attempts")?,
    })
}

/// Opens a sealed payload and returns its plaintext. A payload that is not sealed is returned unchanged.
fn open(id: JobId, payload: String, job_type: &str, version: u16) -> Result<String, Error> {
    let stored = if version > 1 { format!("{job_type}@{version}") } else { job_type.to_owned() };
    match seal::open(&payload, SealScope { store: Store::default(), stored: &stored }) {
        Ok(opened) => Ok(opened.unwrap_or(payload)),
        Err(OpenError::Unavailable(why) | OpenError::Invalid(why)) => Err(Error::Sealed { job: id, why }),
    }
}

/// Wrapper that formats a payload if its type implements `Debug`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Show<'a, T>(pub &'a T);

/// Trait for payloads that implement `Debug`. Implemented for [`Show`] itself, so method resolution prefers it to [`NotShown`], which is
/// implemented for `&Show`.
#[doc(hidden)]
pub trait DebugShown {
    fn show(&self) -> Option<String>;
}

impl<T: Debug> DebugShown for Show<'_, T> {
    fn show(&self) -> Option<String> {
        Some(format!("{:?}", self.0))
    }
}

/// Trait for payloads that do not implement `Debug`. Method resolution finds this trait only if [`DebugShown`] does not apply.
#[doc(hidden)]
pub trait NotShown {
    fn show(&self) -> Option<String>;
}

impl<T> NotShown for &Show<'_, T> {
    fn show(&self) -> Option<String> {
        None
    }
}

/// Asserts that a waiting job has a payload that matches a pattern: `assert_enqueued!(&mut tx, SendEmail { to, .. } if to == "ada")`.
///
/// The macro awaits the query itself, and accepts the same connections as an enqueue: `&mut tx`, `&mut connection` or `&pool`. The
/// pattern starts with the job type and is matched against a reference to the payload. If no job matches, the macro panics with a list of
/// the waiting jobs. If the payload type implements `Debug`, the list also contains the payloads, which are test data.
#[macro_export]
macro_rules! assert_enqueued {
    ($on:expr, $($pattern:tt)+) => {
        $crate::__assert_enqueued!(@begin true, ::std::concat!("`", ::std::stringify!($($pattern)+), "` is not enqueued"), $on, $($pattern)+)
    };
}

/// Asserts that no waiting job has a payload that matches a pattern; see [`assert_enqueued!`](crate::assert_enqueued).
#[macro_export]
macro_rules! assert_not_enqueued {
    ($on:expr, $($pattern:tt)+) => {
        $crate::__assert_enqueued!(@begin false, ::std::concat!("`", ::std::stringify!($($pattern)+), "` is enqueued"), $on, $($pattern)+)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __assert_enqueued {
    (@begin $wanted:expr, $what:expr, $on:expr, $($job:ident)::+ $({ $($fields:tt)* })? $(( $($places:tt)* ))? $(if $guard:expr)? $(,)?) => {
        $crate::__assert_enqueued!(@look $wanted, $what, $on, $($job)::+, $($job)::+ $({ $($fields)* })? $(( $($places)* ))? $(if $guard)?)
    };
    (@look $wanted:expr, $what:expr, $on:expr, $job:path, $pattern:pat $(if $guard:expr)?) => {{
        let sought = match $crate::testing::WaitingJobs::<$job>::query($on).await {
            ::std::result::Result::Ok(sought) => sought,
            ::std::result::Result::Err(error) => ::std::panic!("cannot query the enqueued jobs: {error}"),
        };
        let fits = sought.found.iter().any(|found| ::std::matches!(&found.job, $pattern $(if $guard)?));
        if fits != $wanted {
            #[allow(unused_imports, reason = "which one is used depends on the type")]
            use $crate::testing::{DebugShown as _, NotShown as _};
            let shown: ::std::vec::Vec<_> = sought.found.iter().map(|found| (&$crate::testing::Show(&found.job)).show()).collect();
            ::std::panic!("{}", sought.explain($what, &shown));
        }
    }};
}
