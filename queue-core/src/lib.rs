//! Define typed jobs and enqueue them inside your own PostgreSQL transaction.
//!
//! A job is a struct with `#[job]` and a handler. Enqueue a job in the same transaction as your other writes, so that the job exists if and
//! only if the transaction commits. A `queue-worker` process runs the job and retries failed attempts.
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
//! This crate defines and enqueues jobs, so a web server links only this crate. The crate `queue-worker` runs jobs. If handlers have
//! dependencies that the server should not link, write the handlers as functions with [`handler`](macro@handler) in the worker's crate.
//!
//! # Where to start
//!
//! - [`job`] turns a struct into a job type and lists all options of a type.
//! - [`Handler`], or a function with [`handler`](macro@handler), runs a job with a [`Context`] and returns a [`JobResult`]. A [`Failure`]
//!   determines whether the job is retried.
//! - [`Job`] enqueues one job in your transaction. [`EnqueueAll`] and [`Batch`] enqueue many jobs.
//! - [`EnqueueOptions`] overrides the type's options for one job.
//! - [`Queue`] is a handle to the store. It lists, counts, pauses, cancels and requeues jobs (see [`operate`]), and [waits](wait) for them.
//!
//! Each module covers one subject: [`batch`] handlers that run many jobs in one call, [`durable`] jobs with steps, [`flow`]s of jobs that
//! depend on each other, [`schedule`]s, and [`middleware`]. [`options`] contains the types of options, such as limits and backoffs, and
//! [`registry`] lists the job types of a worker. [`drivers`] enqueues through other database drivers, [`stores`] spreads tenants over many
//! stores, and the module `testing` (feature `testing`) is the test kit.
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | attempt | one run of a handler for a job, counted when the job is claimed |
//! | batch | several jobs that are enqueued together, claimed together, or run by one handler call |
//! | blocked | state of a job that is waiting behind another job of the same ordering key |
//! | capacity | maximum number of waiting jobs in a queue; further enqueues are rejected |
//! | claim | operation that takes a batch of ready jobs under one lease |
//! | crash | end of an attempt because its process has ended |
//! | dead letter | job that is not retried automatically, kept until it is requeued or discarded |
//! | durable job | job of a type whose attempts may end half-way; the next attempt continues after the finished steps |
//! | expiry | time by which a job must start; a job that has not started by then expires and does not run |
//! | fair queue | waiting jobs of one fairness key, in the order in which they became ready; `fair_id` in SQL |
//! | fairness key, fair key | text for fair queueing: keys of one job type take turns, regardless of how many jobs each key has |
//! | flow, node, edge | jobs that are enqueued together; a named job of a flow; the dependency of a node on another node |
//! | handler | user code that runs the jobs of a type |
//! | job type | stable name under which a payload struct is stored (`send_email`) |
//! | job | unit of work with a payload of a job type; enqueued once, and unfinished until it is completed, dead, cancelled or expired |
//! | journal | finished steps of one job |
//! | keyring | named set of keys that seal payloads |
//! | lane | combination of queue, job type and priority; the claim index is ordered by lane |
//! | lease | right of a worker to a claimed batch, identified by a random token that fences all later writes |
//! | limit | maximum number of running jobs or of starts per period over all workers, for a job type, a shared name or a queue |
//! | ordering key | text that orders jobs: jobs of one key run one at a time, in commit order |
//! | outcome | result of an attempt: ok, failure, panic, timeout, cancelled, snooze, parked |
//! | pause | operation that keeps the jobs of a queue, of a type or of the store from starting until the pause ends; the jobs stay ready |
//! | payload | struct of a job type, stored as JSON |
//! | permit | right to run under a limit; a job holds one permit of each of its limits while a lease lists the job |
//! | queue | named stream of jobs to which workers subscribe; the unit of limits and concurrency |
//! | ready, scheduled, parked | waiting for a worker, waiting until `run_at`, waiting for a signal or for other jobs |
//! | recover | to take back the leases of workers whose heartbeat has stopped |
//! | report | data that a running attempt stores: progress, stage, events, a checkpoint for the next attempt |
//! | schedule | rule that enqueues jobs at the times of a cron expression or at an interval |
//! | sealed payload | payload that is stored encrypted because the job type requires encryption |
//! | settle | to write verdicts |
//! | signal | named message to one job, sent in the sender's transaction |
//! | started | charged with an attempt or a crash; a job that was released without a charge has not started |
//! | step | named part of a durable job; finished once it is journaled |
//! | store | schema in a database with the tables of this project; called `queue` by default |
//! | tick | time at which a schedule is due; at most one job is enqueued per tick |
//! | uniqueness key | text that identifies duplicates: while a job holds the key, another enqueue creates no job |
//! | upgrade | conversion of a payload of an older version to the current struct |
//! | verdict | decision about a job after an outcome: complete, retry, dead, snooze, park, release, cancel, expire |
//! | version | version of the payload struct with which a job was enqueued; 1 unless the type declares another version |
//! | wait | operation that awaits the end of a job and returns the outcome of the job |

// Modules are declared in the order of a job's life cycle. A module imports only from lower layers in the drawing in ARCHITECTURE.md. The
// alias `queue_core` exists because the expansion of `#[job]` refers to this crate by name.
extern crate self as queue_core;

// The crate `whoami` is a dependency only to enable its feature `std`. Without `std`, the driver connects as the user `anonymous` if no
// user is given.
use whoami as _;

mod define;
mod payload;
mod trace;
mod program;
mod error;
mod schema;
mod seal;
mod context;
mod attempt;
mod connect;
mod enqueue;
mod results;
pub mod schedule;
pub mod operate;
pub mod stores;
#[cfg(feature = "testing")]
pub mod testing;
mod api;
#[doc(hidden)]
pub mod private;
#[cfg(queue_mutants)]
mod mutants;

pub use api::{batch, drivers, durable, flow, middleware, options, registry, wait};
pub use connect::{IntoConnection, JobRef, migrate};
pub use context::{CancelReason, Cancelled, Context, Handler, JobTransaction, Reporter, TransactionGuard};
pub use define::{EnqueueOutcome, Failure, FailureKind, JobId, JobResult, JobState, JobType, OnConflict, Priority, TerminalExt};
pub use enqueue::{Batch, Enqueue, EnqueueAll, EnqueueOptions, Job, JobHandle};
pub use error::{Error, message};
pub use payload::PayloadError;
pub use queue_macros::{handler, job};
pub use results::Queue;
pub use schema::{Roles, Store, check_name, migrate};
#[cfg(feature = "seal")]
pub use seal::{Keyring, Secret, use_keyring};
/// PostgreSQL driver, in the version whose connections the enqueue methods accept.
pub use sqlx;

/// Components that run attempts, used only by `queue-worker`. This module may change in any release.
#[doc(hidden)]
pub mod runner {
    pub use crate::{
        attempt::{AttemptEnd, ClaimedJob, Halt, OpenLog, run, run_batch},
        context::{
            Backend, ChildEntry, ChildStatus, ChunkEntry, CloseEntry, CommitResult, Fence, JournaledStep, LentTransaction, LogEntry,
            MapProgress, OwnedTransaction, ReceiveResult, Report, ReportEntry, ReportSender, Shared, SignalEntry, States, StepEntry,
            StopRequest, WOULD_FAIL_AGAIN, WriteResult,
        },
        define::{
            Dependents, DueTicks, Ending, HistoryOutcome, OrderingKey, RestartPayload, SettlePath, Timing, stored_type, type_and_version,
        },
        program::{BUNDLED, program_name, remember_program},
        results::percent,
        schema::{
            Channel, ClusterNode, ListenerConnection, Migration, NO_SESSION, StoreLocation, is_refused_setting, locate,
            migrate::{migrate_with, verify_worker},
            mixes_up, place, relay,
        },
    };

    /// Metadata keys that the library writes: the trace context and the tenant of a job.
    pub const LIBRARY_META_KEYS: [&str; 3] = [crate::trace::TRACEPARENT, crate::trace::TRACESTATE, crate::connect::TENANT];
}
