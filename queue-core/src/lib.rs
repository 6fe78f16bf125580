//! Define typed jobs and enqueue them inside your own PostgreSQL transaction.
//!
//! A job is a struct with `#[job]` and a handler. It is enqueued in the transaction that makes it necessary, so that both happen or neither does.
//! A `queue-worker` runs it once, or repeatedly until it succeeds.
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
//! This crate defines and enqueues jobs; a web server links only this one. The crate `queue-worker` runs them.
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | job | unit of work: a payload of a job type, enqueued once, which exists until it is completed, dead, cancelled or expired |
//! | job type | stable name under which a payload struct is stored (`send_email`) |
//! | version | form of a payload's struct when it was enqueued; 1 unless the type declares another |
//! | upgrade | conversion of a payload of an older version to the current struct |
//! | payload | the struct as JSON |
//! | sealed payload | payload that is stored encrypted, because its type requires it |
//! | keyring | named set of keys that seal payloads |
//! | handler | user code that runs the jobs of a type |
//! | queue | named stream of jobs that workers subscribe to; the unit of limits and concurrency |
//! | lane | (queue, job type, priority): the order of the claim index |
//! | ready, scheduled, parked | waiting for a worker, waiting until `run_at`, waiting for a signal |
//! | ordering key | jobs of one key run one at a time, in commit order |
//! | blocked | waiting behind another job of the same ordering key |
//! | claim | takes a batch of ready jobs under one lease |
//! | lease | a worker's right to a claimed batch, named by a random token that fences all later writes |
//! | attempt | one run of a handler for a job, counted when the job is claimed |
//! | batch | several jobs that are enqueued, claimed, or run by one handler call together |
//! | crash | end of an attempt together with its process |
//! | signal | named message to one job, sent in the sender's transaction |
//! | outcome | result of a handler: ok, failure, panic, timeout, cancelled, snooze, parked |
//! | verdict | what is written for an outcome: complete, retry, dead, snooze, park, release, cancel, expire |
//! | settle | to write verdicts |
//! | recover | to take back the leases of workers whose heartbeat has stopped |
//! | report | data that a running attempt stores: progress, stage, events, a checkpoint for the next attempt |
//! | expiry | time by which a job must begin; otherwise it finishes as expired, and is not run |
//! | begun | charged with an attempt or a crash; a job that was released uncharged has not begun |
//! | wait | awaits the end of a job and returns its outcome |
//! | durable job | job of a type whose attempts may end half-way and continue later |
//! | flow, node, edge | jobs that are enqueued together; one of them, with a name; the wait of one for another |
//! | step | named part of a durable job; finished once it is journaled |
//! | journal | finished steps of one job |
//! | dead letter | job that is not retried automatically, kept until it is requeued or discarded |
//! | fair key | jobs of one type with different fair keys take turns, however many of each are waiting |
//! | fair queue | waiting jobs of one fair key, in the order in which they became ready; `line` in SQL |
//! | uniqueness key | identifies duplicates: while a job holds the key, another enqueue changes that job or nothing |
//! | capacity | maximum number of waiting jobs in a queue; further enqueues are refused |
//! | pause | stops a queue, a job type or everything from starting jobs until it is resumed; jobs stay ready |
//! | limit | maximum number of running jobs, or of starts per period, of a type, a shared name or a queue, over all workers |
//! | permit | right to run under a limit; a job holds one permit of each of its limits while a lease lists it |
//! | schedule | enqueues jobs at the times of a cron expression or at an interval |
//! | tick | one of these times; at most one job is enqueued for it |
//! | store | one schema in one database with the tables of this project; `queue` by default |

// In the order of a job's life. Imports go down only (see ARCHITECTURE.md).
// The expansion of `#[job]` names this crate.
extern crate self as queue_core;

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
#[doc(hidden)]
pub mod private;
#[cfg(queue_mutants)]
mod mutants;

/// Re-exported for implementations of [`Middleware`].
pub use async_trait::async_trait;
pub use connect::{IntoConnection, JobRef};
pub use context::{
    AttemptOutput, BatchContext, BatchHandler, BatchJob, CancelReason, Cancelled, Context, Durable, Handler, HandlerContext, HandlerFuture,
    JobBatch, JobFuture, JobTransaction, Middleware, Next, Receive, ReceiveWithin, Registration, Registry, RegistryError, Reporter,
    StepName, TransactionGuard,
};
pub use define::{
    Backoff, Durability, Enqueued, Failure, FailureKind, JobId, JobResult, JobState, JobType, KeyPolicy, Limit, Of, OldPayload, OnConflict,
    Options, Outcome, Priority, Retain, StateKey, TerminalExt, Unique, UniqueKey, UnknownState, Verdict, While, most_together, verdict,
};
pub use enqueue::{
    Batch, Child, Counts, Enqueue, EnqueueAll, EnqueueOptions, Enqueuing, Flow, FlowHandle, Gather, IfDead, Job, JobHandle, Map, Nested,
    Node, Parts, Rendered, Source, Spawn, Statement, Then, on_enqueue,
};
pub use error::{Error, message};
pub use payload::PayloadError;
pub use queue_macros::job;
pub use results::{Ended, JobStatus, Outputs, Progress, Wait, WaitError, WaitOn, Waiter, Watch};
pub use schema::{Roles, Store, check_name, migrate};
#[cfg(feature = "seal")]
pub use seal::{Keyring, Secret, use_keyring};
/// The driver, in the version whose connections enqueue methods accept.
pub use sqlx;
pub use trace::TraceRelation;

/// Building blocks of attempts, for `queue-worker` only. They change without notice.
#[doc(hidden)]
pub mod runner {
    pub use crate::{
        attempt::{AttemptEnd, ClaimedJob, Halt, OpenLog, run, run_batch},
        context::{
            Backend, ChildEntry, ChildStatus, ChunkEntry, CloseEntry, CommitResult, Fence, JournaledStep, LentTransaction, LogEntry,
            MapProgress, OwnedTransaction, ReceiveResult, Report, ReportEntry, ReportSender, Shared, SignalEntry, States, StepEntry,
            StopRequest, WriteResult,
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
}
