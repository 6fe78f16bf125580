//! Errors returned while waiting for a job.

use std::{io, sync::Arc, time::Duration};

use crate::{define::JobId, error::Error};

/// Error returned while waiting for a job's output.
///
/// ```no_run
/// # use queue_core::{JobHandle, job, wait::WaitError};
/// # use serde::{Deserialize, Serialize};
/// # #[job(send_only, output = i64)]
/// # #[derive(Serialize, Deserialize)]
/// # struct Add(i64, i64);
/// # async fn example(queue: &queue_core::Queue, handle: JobHandle<Add>) -> Result<(), WaitError> {
/// match handle.wait(queue).await {
///     Ok(sum) => println!("{sum}"),
///     Err(WaitError::Dead { error, attempts, .. }) => println!("dead after {attempts} attempts: {error}"),
///     Err(WaitError::Cancelled { job, .. }) => println!("job {job} was cancelled"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The job is a dead letter and is not retried automatically.
    #[error("job {job} is dead after {attempts} attempts: {error}")]
    Dead {
        /// Id of the awaited job.
        job: JobId,
        /// Error of the last attempt.
        error: String,
        /// Number of attempts before the job became a dead letter.
        attempts: i16,
    },
    /// The job was cancelled.
    #[error("job {job} was cancelled")]
    Cancelled {
        /// Id of the awaited job.
        job: JobId,
        /// Error of the last attempt, if any.
        error: Option<String>,
    },
    /// The job expired. No attempt started before the job's expiry time, and the job will not run.
    #[error("job {job} has expired: no worker began it in time; check that enough workers serve its queue, or extend its expiry")]
    Expired {
        /// Id of the awaited job.
        job: JobId,
    },
    /// The job did not finish within the timeout.
    #[error("job {job} did not finish within {timeout:?}")]
    Timeout {
        /// Id of the awaited job.
        job: JobId,
        /// Timeout that was exceeded.
        timeout: Duration,
    },
    /// The job does not exist, or its record has been pruned.
    #[error("there is no job {job}: it was never enqueued, its transaction is not committed, or its history is pruned")]
    NotFound {
        /// Id of the awaited job.
        job: JobId,
    },
    /// The job belongs to a different store than the [`Queue`](crate::Queue).
    #[error(
        "job {job} is in the store `{store}`, and this `Queue` is a handle to `{handle}`; create it with `Queue::new(&pool).store(..)`"
    )]
    OtherStore {
        /// Id of the awaited job.
        job: JobId,
        /// Schema of the job's store.
        store: &'static str,
        /// Schema of the store that the `Queue` accesses.
        handle: &'static str,
    },
    /// The job type keeps no record of completed jobs, so completion cannot be observed.
    #[error("a completed `{job_type}` leaves no record (`retain = \"none\"`), so it cannot be waited for")]
    NotKept {
        /// Name of the job type.
        job_type: &'static str,
    },
    /// The job completed, but the output cannot be decoded, for example because an older release wrote it.
    #[error("the output of job {job} does not fit the type `{rust_type}` (column {column})")]
    Output {
        /// Id of the awaited job.
        job: JobId,
        /// Rust type of the output.
        rust_type: &'static str,
        /// Column in the JSON text at which decoding failed.
        column: usize,
    },
    /// The store is missing, the pool is closed, the role lacks a privilege, the runtime is shutting down, or the database was unavailable
    /// for 30 seconds.
    #[error(transparent)]
    Store(Arc<Error>),
}

impl WaitError {
    /// Returns the error of a wait whose waiter task has ended or cannot be started.
    pub(super) fn waiter_ended() -> Self {
        Self::store(Error::Database(sqlx::Error::Io(io::Error::other("the tokio runtime is shutting down"))))
    }

    pub(super) fn store(error: Error) -> Self {
        Self::Store(Arc::new(error))
    }
}
