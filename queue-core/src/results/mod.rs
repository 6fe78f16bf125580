//! Waiting for a job: its typed output, or why there will be none; its state; its progress as it goes.
//!
//! Looking is what counts: a notification only makes the next look come sooner, so a lost one costs time and nothing else. One job is looked
//! at over a pool (`watcher`), thousands together by a `Waiter`; nothing of it needs a worker in this process.

mod error;
mod join;
mod look;
mod node;
mod parts;
mod progress;
mod waiter;
mod watch;
mod watcher;

use std::{
    any::type_name,
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    time::Duration,
};

use sqlx::Row as _;

pub use self::{
    error::WaitError,
    parts::{Ended, Outputs},
    progress::{Progress, percent},
    waiter::Waiter,
    watch::Watch,
    watcher::WaitOn,
};
use self::{look::WaitOutcome, watcher::JobWatcher};
use crate::{
    connect::JobRef,
    define::{JobId, JobState, JobType, Retain, UnknownState},
    enqueue::{JobHandle, explain},
};

impl<J: JobType> JobHandle<J> {
    /// Waits until the job is over, and returns what its handler did: `handle.wait(&pool).await`. Commit the transaction that enqueued it first:
    /// before that there is no such job.
    ///
    /// On a pool, the job is looked at after 5 ms and then less and less often, down to four times a second, each time with a connection
    /// of the pool's. A process that waits for many jobs, or wants to be told at once, has a [`Waiter`]: `handle.wait(&waiter)`. The job is looked
    /// for in the handle's own store.
    ///
    /// Dropped, it leaves nothing behind. There is no timeout unless one is given with [`Wait::timeout`].
    ///
    /// # Errors
    /// See [`WaitError`].
    pub fn wait(&self, on: impl Into<WaitOn>) -> Wait<J> {
        Wait { job: *self, on: on.into(), timeout: None }
    }

    /// How the job is now.
    ///
    /// # Errors
    /// [`WaitError::NotFound`] when it is not there; [`WaitError::Output`] when it is completed with an output that is no `J::Output`; [`WaitError::Store`].
    pub async fn status(&self, on: impl Into<WaitOn>) -> Result<JobStatus<J::Output>, WaitError> {
        let (pool, store) = (on.into().pool(), self.store());
        let statement = sqlx::query(store.sql(include_str!("../../sql/status.sql"))).bind(self.id());
        let fail = |error| WaitError::store(explain(error, store));
        let row = statement.fetch_optional(&pool).await.map_err(fail)?.ok_or(WaitError::NotFound { job: self.id() })?;
        let state: &str = row.try_get("state").map_err(fail)?;
        let state = state.parse().map_err(|error: UnknownState| fail(sqlx::Error::Decode(error.into())))?;
        let output: Option<String> = row.try_get("output").map_err(fail)?;
        Ok(JobStatus {
            state,
            attempts: row.try_get("attempts").map_err(fail)?,
            error: row.try_get("error").map_err(fail)?,
            output: (state == JobState::Completed).then(|| decode::<J>(self.id(), output.as_deref())).transpose()?,
        })
    }
}

impl JobRef {
    /// How far the job is, as it said itself.
    ///
    /// # Errors
    /// [`WaitError::NotFound`] when it is not there; [`WaitError::Store`].
    pub async fn progress(&self, on: impl Into<WaitOn>) -> Result<Progress, WaitError> {
        let (pool, store) = (on.into().pool(), self.store());
        let found = look::look(&pool, store, &[self.id()]).await.map_err(|error| WaitError::store(explain(error, store)))?;
        found.into_iter().next().map(|(_, snapshot)| snapshot.progress).ok_or(WaitError::NotFound { job: self.id() })
    }

    /// The job's progress as it goes: a stream, see [`Watch`].
    pub fn watch(&self, on: impl Into<WaitOn>) -> Watch {
        Watch::new(*self, on.into())
    }
}

/// A wait for a job's output, to be awaited; from [`JobHandle::wait`].
///
/// ```no_run
/// # use std::time::Duration;
/// # use queue_core::{JobHandle, JobId, WaitError, job};
/// # use serde::{Deserialize, Serialize};
/// /// Adds two numbers.
/// #[job(send_only, output = i64)]
/// #[derive(Serialize, Deserialize)]
/// struct Add(i64, i64);
///
/// # async fn example(pool: sqlx::PgPool, id: JobId) -> Result<(), Box<dyn std::error::Error>> {
/// match JobHandle::<Add>::from_id(id).wait(&pool).timeout(Duration::from_secs(10)).await {
///     Ok(sum) => println!("{sum}"),
///     Err(WaitError::Dead { error, attempts, .. }) => println!("given up after {attempts} attempts: {error}"),
///     Err(WaitError::Timeout { .. }) => println!("not yet"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing is waited for until this is awaited"]
pub struct Wait<J> {
    job: JobHandle<J>,
    on: WaitOn,
    timeout: Option<Duration>,
}

impl<J: JobType> Wait<J> {
    /// For so long at most; then it is [`WaitError::Timeout`], and the job goes on. Default: for ever.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    async fn go(self) -> Result<J::Output, WaitError> {
        let job = self.job.id();
        if J::OPTIONS.retain == Retain::None {
            return Err(WaitError::NotKept { job_type: J::OPTIONS.name });
        }
        let mut watcher = JobWatcher::open(self.job.job_ref(), self.on.0, false)?;
        let over = async {
            loop {
                match &watcher.next().await?.outcome {
                    WaitOutcome::Live | WaitOutcome::Later => {}
                    WaitOutcome::NotFound => break Err(WaitError::NotFound { job }),
                    WaitOutcome::Completed { output } => break decode::<J>(job, output.as_deref()),
                    WaitOutcome::Cancelled { error } => break Err(WaitError::Cancelled { job, error: error.clone() }),
                    WaitOutcome::Expired => break Err(WaitError::Expired { job }),
                    WaitOutcome::Dead { error, attempts } => break Err(WaitError::Dead { job, error: error.clone(), attempts: *attempts }),
                }
            }
        };
        match self.timeout {
            Some(timeout) => tokio::time::timeout(timeout, over).await.unwrap_or(Err(WaitError::Timeout { job, timeout })),
            None => over.await,
        }
    }
}

impl<J: JobType> IntoFuture for Wait<J> {
    type Output = Result<J::Output, WaitError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.go())
    }
}

impl<J> fmt::Debug for Wait<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("job", &self.job).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A job as its producer sees it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobStatus<T> {
    /// Where it is.
    pub state: JobState,
    /// How many attempts were begun; of a job that waits to become ready anew, 0.
    pub attempts: i16,
    /// Why its last attempt failed, unless it is completed.
    pub error: Option<String>,
    /// What its handler returned, if it is completed.
    pub output: Option<T>,
}

/// A job that returned nothing has none stored.
fn decode<J: JobType>(job: JobId, output: Option<&str>) -> Result<J::Output, WaitError> {
    let wrong = |error: serde_json::Error| WaitError::Output { job, rust_type: type_name::<J::Output>(), column: error.column() };
    serde_json::from_str(output.unwrap_or("null")).map_err(wrong)
}
