#![doc = include_str!("../../docs/TESTING.md")]

// The modules are listed in the order in which a test uses them.
mod run;
mod claimed;
mod batch;
mod drain;
mod finish;
mod enqueued;
mod connection;
mod attempt;
mod interrupt;
mod points;
mod backend;
mod payloads;
mod lock;
mod unread;

#[doc(hidden)]
pub use self::enqueued::{DebugShown, NotShown, Show, WaitingJobs};
pub use self::{
    attempt::Attempt,
    batch::{BatchRunResult, RunBatch, run_batch, run_batch_with},
    drain::{Drain, DrainResult, advance, drain},
    enqueued::{EnqueuedJob, enqueued, enqueued_jobs},
    interrupt::{InterruptionReport, interrupt_everywhere},
    payloads::Payloads,
    points::Place,
    run::{Run, RunResult, run, run_with},
};
pub use crate::{assert_enqueued, assert_not_enqueued, assert_payloads};

use std::fmt;

use points::shown;

use crate::{context::RegistryError, define::JobId, error::Error as CoreError};

/// Error of the test kit itself. The failure of a handler is not an error; see [`Attempt`].
///
/// ```no_run
/// # async fn example(tx: &mut sqlx::PgConnection) {
/// use queue_core::testing::{self, Error};
///
/// match testing::drain(tx).await {
///     Ok(drained) => println!("{} jobs completed", drained.completed()),
///     Err(Error::Endless { most }) => println!("jobs enqueue each other: {most} attempts"),
///     Err(error) => println!("{error}"),
/// }
/// # }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The state that a handler requires is missing, or the registry is invalid.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The handler of a transactional job type needs a transaction. The handler can use the test's transaction only if a pool is set.
    #[error("`{job_type}` is a transactional type: set `.pool(&pool)`, so that the test's transaction can be lent to its handler")]
    NeedsPool {
        /// Name of the job type.
        job_type: String,
    },
    /// The drain has reached its default maximum number of attempts, and another job is ready.
    #[error("{most} jobs were run and another is ready: do they enqueue each other? If not, set `.at_most(..)`")]
    Endless {
        /// Number of attempts that ran before the error.
        most: usize,
    },
    /// The handler reached more places than allowed, before or after the interruption.
    #[error("interrupted {}, the handler has waited {most} more times, and its job has not finished", shown(*.at))]
    Restless {
        /// Place of the interruption; `None` if the handler was not interrupted.
        at: Option<Place>,
        /// Maximum number of places, which was exceeded.
        most: usize,
    },
    /// The job has not finished within the maximum number of attempts.
    #[error("interrupted {}, the job has not finished after {attempts} attempts", shown(*.at))]
    Unending {
        /// Place of the interruption; `None` if the job was not interrupted.
        at: Option<Place>,
        /// Number of attempts that ran before the error.
        attempts: usize,
    },
    /// A task spawned by the handler is still running and holds the test's transaction.
    #[error("the handler of job {job} has ended, but the transaction lent to it is still in use: does a spawned task hold it?")]
    Kept {
        /// Id of the affected job.
        job: JobId,
    },
    /// The payload of a job cannot be decoded as the requested type.
    #[error("the payload of job {job} does not fit the type `{rust_type}` (column {column})")]
    Payload {
        /// Id of the affected job.
        job: JobId,
        /// Requested Rust type.
        rust_type: &'static str,
        /// Column in the JSON text at which decoding failed.
        column: usize,
    },
    /// The payload of a job is sealed and cannot be opened.
    #[error("the payload of job {job} cannot be opened: {why}")]
    Sealed {
        /// Id of the affected job.
        job: JobId,
        /// Reason why the payload cannot be opened.
        why: String,
    },
    /// A database error, or a problem with the store.
    #[error(transparent)]
    Store(#[from] CoreError),
}

impl fmt::Debug for Error {
    /// Writes the error message, because a test that unwraps the error prints its `Debug` form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}
