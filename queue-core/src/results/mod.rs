//! Handle to a store, with methods that wait for a job's typed output and methods that query a job's status and progress.
//!
//! Results are found by polling. A notification only triggers the next poll earlier, so a lost notification only delays the result. One
//! task polls all jobs that are awaited through a handle and its clones. Waiting requires no worker in this process.

mod error;
mod join;
mod poll;
mod node;
mod parts;
mod progress;
mod queue;
mod snapshots;
mod waiter;
mod waiter_connection;
mod watch;

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
    parts::{MapOutcome, Outputs},
    progress::{Progress, percent},
    queue::{OnConnection, Queue, QueueConnection, QueueJob},
    watch::Watch,
};
use self::{poll::WaitOutcome, snapshots::Snapshots};
use crate::{
    connect::{IntoConnection, JobRef},
    define::{JobId, JobState, JobType, Retain, UnknownState},
    enqueue::{JobHandle, store_error},
    error::Error,
};

impl<J: JobType> JobHandle<J> {
    /// Waits until the job has finished, and returns its output: `handle.wait(&queue).await`.
    ///
    /// Before the wait, commit the transaction that enqueues the job, because the job does not exist before the commit. The future can be
    /// dropped at any time. By default, there is no timeout; see [`Wait::timeout`].
    ///
    /// All waits of a [`Queue`] and its clones share one connection. The connection is opened by the first wait, and closed two to three
    /// seconds after the last wait. Workers notify this connection, so a result arrives milliseconds after its commit. If a notification
    /// is lost, the result is found within a second. Jobs are polled four times a second if the connection cannot receive notifications:
    /// on a standby, with a read-only login, or behind a pooler in transaction mode (see [`Queue::direct`]).
    ///
    /// # Errors
    /// The future returns a [`WaitError`] if the job did not complete, or if the output cannot be read.
    pub fn wait(&self, queue: &Queue) -> Wait<J> {
        Wait { job: *self, queue: queue.clone(), timeout: None }
    }

    /// Returns the job's current status.
    ///
    /// # Errors
    /// Returns [`WaitError::NotFound`] if the job does not exist, and [`WaitError::Output`] if the output cannot be decoded as
    /// `J::Output`. Returns [`WaitError::Store`] if the status cannot be read.
    pub async fn status(&self, on: impl IntoConnection<'_>) -> Result<JobStatus<J::Output>, WaitError> {
        let (mut on, store) = (on.into_connection(), self.store());
        let statement = sqlx::query(store.sql(include_str!("../../sql/status.sql"))).bind(self.id());
        let fail = |error| WaitError::store(store_error(error, store));
        let mut connection = on.acquire().await.map_err(fail)?;
        let row = statement.fetch_optional(&mut *connection).await.map_err(fail)?.ok_or(WaitError::NotFound { job: self.id() })?;
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
    /// Returns the progress last reported by the job.
    ///
    /// # Errors
    /// Returns [`Error::NotFound`] if the job does not exist, and an error if the database query fails.
    pub async fn progress(&self, on: impl IntoConnection<'_>) -> Result<Progress, Error> {
        let (mut on, store) = (on.into_connection(), self.store());
        let mut connection = on.acquire().await?;
        let found = poll::poll_jobs(&mut *connection, store, &[self.id()]).await.map_err(|error| store_error(error, store))?;
        found.into_iter().find_map(|(_, snapshot)| Some(snapshot?.progress)).ok_or(Error::NotFound { job: self.id() })
    }

    /// Returns a stream of the job's progress; see [`Watch`]. The job is polled five times a second.
    pub fn watch(&self, queue: &Queue) -> Watch {
        Watch::new(*self, queue.clone())
    }
}

/// Methods that wait for one job. They require a [`Queue`] with a pool, because a wait outlasts a transaction.
impl QueueJob<'_> {
    /// Waits until the job has finished, and returns its output; see [`JobHandle::wait`]. `J` must be the job's type, which is not checked.
    ///
    /// # Errors
    /// The future returns the errors of [`JobHandle::wait`].
    pub fn wait<J: JobType>(&self) -> Wait<J> {
        JobHandle::from_id(self.id).in_store(self.queue.store).wait(self.queue)
    }

    /// Returns a stream of the job's progress; see [`Watch`].
    pub fn watch(&self) -> Watch {
        self.job_ref().watch(self.queue)
    }
}

impl<C: QueueConnection> QueueJob<'_, C> {
    /// Returns the progress last reported by the job; see [`JobRef::progress`].
    ///
    /// # Errors
    /// Returns the errors of [`JobRef::progress`].
    pub async fn progress(&self) -> Result<Progress, Error> {
        self.job_ref().progress(self.queue.lend().await).await
    }
}

/// Future that returns a job's output. Created by [`QueueJob::wait`] and [`JobHandle::wait`].
///
/// ```no_run
/// # use std::time::Duration;
/// # use queue_core::{JobId, Queue, job, wait::WaitError};
/// # use serde::{Deserialize, Serialize};
/// /// Adds two numbers.
/// #[job(send_only, output = i64)]
/// #[derive(Serialize, Deserialize)]
/// struct Add(i64, i64);
///
/// # async fn example(queue: Queue, id: JobId) -> Result<(), Box<dyn std::error::Error>> {
/// match queue.job(id).wait::<Add>().timeout(Duration::from_secs(10)).await {
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
    queue: Queue,
    timeout: Option<Duration>,
}

impl<J: JobType> Wait<J> {
    /// Sets the timeout of the wait. After `timeout`, the future returns [`WaitError::Timeout`]. The job is not affected. Default: no
    /// timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    async fn run(self) -> Result<J::Output, WaitError> {
        let job = self.job.id();
        if J::OPTIONS.retain == Retain::None {
            return Err(WaitError::NotKept { job_type: J::OPTIONS.name });
        }
        let end = async {
            let mut snapshots = Snapshots::new(self.queue.clone(), self.job.job_ref(), false);
            loop {
                match &snapshots.next().await?.outcome {
                    WaitOutcome::Live => {}
                    WaitOutcome::NotFound => break Err(WaitError::NotFound { job }),
                    WaitOutcome::Completed { output } => break decode::<J>(job, output.as_deref()),
                    WaitOutcome::Cancelled { error } => break Err(WaitError::Cancelled { job, error: error.clone() }),
                    WaitOutcome::Expired => break Err(WaitError::Expired { job }),
                    WaitOutcome::Dead { error, attempts } => break Err(WaitError::Dead { job, error: error.clone(), attempts: *attempts }),
                }
            }
        };
        match self.timeout {
            Some(timeout) => tokio::time::timeout(timeout, end).await.unwrap_or(Err(WaitError::Timeout { job, timeout })),
            None => end.await,
        }
    }
}

impl<J: JobType> IntoFuture for Wait<J> {
    type Output = Result<J::Output, WaitError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<J> fmt::Debug for Wait<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("job", &self.job).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Status of a job at the time of the query.
///
/// ```no_run
/// # use queue_core::{JobHandle, job, wait::WaitError};
/// # use serde::{Deserialize, Serialize};
/// # #[job(send_only, output = i64)]
/// # #[derive(Serialize, Deserialize)]
/// # struct Add(i64, i64);
/// # async fn example(pool: &sqlx::PgPool, handle: JobHandle<Add>) -> Result<(), WaitError> {
/// let status = handle.status(pool).await?;
/// match status.output {
///     Some(sum) => println!("{sum}"),
///     None => println!("{:?} after {} attempts: {:?}", status.state, status.attempts, status.error),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobStatus<T> {
    /// State of the job at the time of the query.
    pub state: JobState,
    /// Number of attempts started. The number is 0 for a requeued or restarted job that has not started again.
    pub attempts: i16,
    /// Error of the last attempt, unless the job has completed.
    pub error: Option<String>,
    /// Output of the handler, if the job has completed.
    pub output: Option<T>,
}

/// Decodes an output. A missing output is decoded as the unit value, which is not stored.
fn decode<J: JobType>(job: JobId, output: Option<&str>) -> Result<J::Output, WaitError> {
    let wrong = |error: serde_json::Error| WaitError::Output { job, rust_type: type_name::<J::Output>(), column: error.column() };
    serde_json::from_str(output.unwrap_or("null")).map_err(wrong)
}
