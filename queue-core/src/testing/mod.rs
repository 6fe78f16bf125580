#![doc = include_str!("../../docs/TESTING.md")]

// In the order in which a test needs them.
mod run;
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
pub use self::enqueued::{DebugShown, NotShown, Show, Sought};
pub use self::{
    attempt::Attempt,
    batch::{RanBatch, RunBatch, run_batch},
    drain::{Drain, Drained, advance, drain},
    enqueued::{EnqueuedJob, enqueued, enqueued_jobs},
    interrupt::{Interrupted, interrupt_everywhere},
    payloads::Payloads,
    points::Place,
    run::{Ran, Run, run},
};
pub use crate::{assert_enqueued, assert_not_enqueued, assert_payloads};

use points::shown;

use crate::{context::RegistryError, define::JobId, error::Error as CoreError};

/// Why a test kit's call failed. A handler's failure is none: see [`Attempt`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A handler needs state that was not given, or the registry has a fault.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A transactional type's handler needs a transaction, which is lent to it in exchange for a connection of a pool.
    #[error("`{job_type}` is a transactional type: say `.pool(&pool)`, so that the test's transaction can be lent to its handler")]
    NeedsPool {
        /// The job type.
        job_type: String,
    },
    /// There were more attempts than anybody meant.
    #[error("{most} jobs were run and there is still another: do they enqueue each other? If not, say `.at_most(..)`")]
    Endless {
        /// So many were run.
        most: usize,
    },
    /// A handler waits more often than can be tried, or, once it was interrupted, for ever.
    #[error("interrupted {}, the handler has waited {most} times more, and its job is not over", shown(*.at))]
    Restless {
        /// The place at which it was interrupted; `None` if nowhere.
        at: Option<Place>,
        /// So many are tried.
        most: usize,
    },
    /// A handler that is interrupted, or is not, never ends its job.
    #[error("interrupted {}, the job is not over after {attempts} attempts", shown(*.at))]
    Unending {
        /// The place at which it was interrupted; `None` if nowhere.
        at: Option<Place>,
        /// So many were run.
        attempts: usize,
    },
    /// A handler left something running that still holds the transaction it was lent.
    #[error("the handler of job {job} has ended, and the transaction that it was lent is still in use: does a task of its own hold it?")]
    Kept {
        /// The job.
        job: JobId,
    },
    /// A job's payload is no payload of the type that was asked for.
    #[error("the payload of job {job} does not fit the type `{rust_type}` (column {column})")]
    Payload {
        /// The job.
        job: JobId,
        /// The type.
        rust_type: &'static str,
        /// Where in the JSON text.
        column: usize,
    },
    /// A job's payload is sealed, and cannot be opened here.
    #[error("the payload of job {job} cannot be opened: {why}")]
    Sealed {
        /// The job.
        job: JobId,
        /// Why.
        why: String,
    },
    /// The database, or what is wrong with the store.
    #[error(transparent)]
    Store(#[from] CoreError),
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}
