//! Why a wait ends without an output.

use std::{sync::Arc, time::Duration};

use crate::{define::JobId, error::Error};

/// Why there is no output of a job that was waited for.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// It is a dead letter: it is not tried again by itself.
    #[error("job {job} is dead after {attempts} attempts: {error}")]
    Dead {
        /// The job.
        job: JobId,
        /// Why its last attempt failed.
        error: String,
        /// How many attempts there were.
        attempts: i16,
    },
    /// It was cancelled.
    #[error("job {job} was cancelled")]
    Cancelled {
        /// The job.
        job: JobId,
        /// Why its last attempt failed, if there was one.
        error: Option<String>,
    },
    /// It had not begun by the time that its enqueue said, and was not run.
    #[error("job {job} has expired: no worker began it in time; see whether enough of them serve its queue, or give it longer")]
    Expired {
        /// The job.
        job: JobId,
    },
    /// It is not over yet.
    #[error("job {job} was not over within {timeout:?}")]
    Timeout {
        /// The job.
        job: JobId,
        /// How long was waited.
        timeout: Duration,
    },
    /// There is no such job, or nothing is known of it any more.
    #[error("there is no job {job}: it was never enqueued, its transaction is not committed, or its history is pruned")]
    NotFound {
        /// The job.
        job: JobId,
    },
    /// The waiter looks for jobs in another store.
    #[error("job {job} is in the store `{store}`, and this waiter waits in `{waiter}`; start one there with `Waiter::start_on`")]
    OtherStore {
        /// The job.
        job: JobId,
        /// The schema of its store.
        store: &'static str,
        /// That of the waiter's.
        waiter: &'static str,
    },
    /// Its type keeps no record of a completed job, so nobody could say that it is one.
    #[error("a completed `{job_type}` leaves no record (`retain = \"none\"`), so it cannot be waited for")]
    NotKept {
        /// The job type.
        job_type: &'static str,
    },
    /// It is completed, but what its handler returned, by the code of that time, cannot be read.
    #[error("the output of job {job} does not fit the type `{rust_type}` (column {column})")]
    Output {
        /// The job.
        job: JobId,
        /// The type of its output.
        rust_type: &'static str,
        /// Where in the JSON text.
        column: usize,
    },
    /// The store is not there, or the database failed for half a minute.
    #[error(transparent)]
    Store(Arc<Error>),
}

impl WaitError {
    pub(super) fn store(error: Error) -> Self {
        Self::Store(Arc::new(error))
    }
}
