//! Define typed jobs and enqueue them inside your own PostgreSQL transaction.
//!
//! A job is a struct with `#[job]` and a handler. It is enqueued in the transaction that gives cause for it, so that both happen or neither
//! does, and it is run by a `queue-worker` somewhere, once, or again until it succeeds.
//!
//! ```no_run
//! use queue_core::{Context, Handler, Job, JobResult, job};
//! use serde::{Deserialize, Serialize};
//!
//! /// Sends one mail.
//! #[job(queue = "mail", max_attempts = 5, backoff = exponential("1s", max = "10m"), timeout = "30s")]
//! #[derive(Serialize, Deserialize)]
//! struct SendEmail {
//!     to: String,
//! }
//!
//! impl Handler for SendEmail {
//!     async fn run(self, cx: &Context) -> JobResult {
//!         println!("attempt {}: mail to {}", cx.attempt(), self.to);
//!         Ok(())
//!     }
//! }
//!
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let mut tx = pool.begin().await?;
//! sqlx::query("insert into users (mail) values ('ada@example.org')").execute(&mut *tx).await?;
//! SendEmail { to: "ada@example.org".into() }.enqueue(&mut tx).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```
//!
//! This crate defines and enqueues; a web server links only this. What happens to a job afterwards is `queue-worker`'s.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | job | one unit of work: a payload of a job type, enqueued once, living until it is completed, dead or cancelled |
//! | job type | the stable name under which a payload struct is stored (`send_email`) |
//! | payload | the struct as JSON |
//! | handler | the user's code for a job type |
//! | queue | a named stream of jobs that workers subscribe to; the unit of limits and concurrency |
//! | lane | (queue, job type, priority): what the claim index is ordered by |
//! | ready, scheduled | waiting now, waiting until `run_at` |
//! | ordering key | jobs of one key run one at a time, in the order in which they were committed |
//! | blocked | waiting behind another job of its ordering key |
//! | claim | to take a batch of ready jobs under one lease |
//! | lease | one worker's right to a claimed batch, named by a random token; all it may later write is fenced by it |
//! | attempt | one run of a handler, counted at the claim |
//! | crash | an attempt that ended with its process |
//! | outcome | what the handler said: ok, failure, panic, timeout, cancelled, snooze |
//! | verdict | what is written for it: complete, retry, dead, snooze, release, cancel |
//! | settle | to write verdicts |
//! | recover | to take back the leases of workers that stopped beating |
//! | report | what a running attempt says of itself: progress, stage, events, a checkpoint for the next attempt |
//! | wait | to await that a job is over, and what came of it |
//! | dead letter | a job that will not be tried again by itself, kept until someone requeues or discards it |
//! | uniqueness key | what makes a job unique: while another holds it, an enqueue changes that one or nothing |
//! | capacity | how many jobs may wait in a queue before an enqueue is refused |
//! | store | one schema in one database with our tables; `queue` by default |

// In the order of a job's life.
mod job;
mod options;
mod unique;
mod retry;
mod context;
mod begin;
mod report;
mod progress;
mod registry;
mod record;
mod payload;
mod enqueue;
mod wait;
mod control;
mod store;
pub mod migrate;
mod error;
#[cfg(feature = "testing")]
pub mod testing;
#[doc(hidden)]
pub mod private;
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutants;

pub use begin::JobTransaction;
pub use context::{Context, TransactionGuard};
pub use enqueue::{Added, Batch, Enqueue, EnqueueAll, EnqueueAllIds, EnqueueWhenFree, IntoConnection, JobHandle, TryEnqueue};
pub use error::{Error, RegistryError, message};
pub use job::{Failure, FailureKind, Handler, Job, JobResult, TerminalExt};
pub use migrate::migrate;
pub use options::{Durability, KeyPolicy, Options, Priority, Retain, StateKey};
pub use payload::PayloadError;
pub use progress::Progress;
pub use queue_macros::job;
pub use record::{AttemptFailure, JobId, JobRecord, JobState, UnknownState};
pub use registry::{Registration, Registry, Running};
pub use report::Reporter;
pub use retry::{Backoff, Outcome, Verdict, verdict};
pub use store::{Store, check_name};
pub use unique::{Enqueued, OnConflict, Unique, UniqueKey, While};
pub use wait::{JobStatus, Wait, WaitError, WaitOn, Waiter, Watch};

/// What only the worker builds.
#[doc(hidden)]
pub mod worker {
    pub use crate::{
        begin::{Commit, FINISH_ONE, Fence, NOT_COMPLETED, Ruling, Said, Stage},
        context::{Lent, Shared, States},
        report::{Desk, Entry, Report, Written},
    };
}
