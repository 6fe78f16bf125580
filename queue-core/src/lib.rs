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
//! | job | one unit of work: a payload of a job type, enqueued once, living until it is completed, dead, cancelled or expired |
//! | job type | the stable name under which a payload struct is stored (`send_email`) |
//! | version | of a payload: which form of its struct it was enqueued in; 1 unless the type says another |
//! | upgrade | to make a payload of an older version one of its type |
//! | payload | the struct as JSON |
//! | sealed | of a payload: stored encrypted, because its type says so |
//! | keyring | the keys by which payloads are sealed, under a name |
//! | handler | the user's code for a job type |
//! | queue | a named stream of jobs that workers subscribe to; the unit of limits and concurrency |
//! | lane | (queue, job type, priority): what the claim index is ordered by |
//! | ready, scheduled, parked | waiting now, waiting until `run_at`, waiting for a signal |
//! | ordering key | jobs of one key run one at a time, in the order in which they were committed |
//! | blocked | waiting behind another job of its ordering key |
//! | claim | to take a batch of ready jobs under one lease |
//! | lease | one worker's right to a claimed batch, named by a random token; all it may later write is fenced by it |
//! | attempt | one run of a handler for a job, counted at the claim |
//! | batch | several jobs at once: enqueued, claimed, or run by one call of a handler |
//! | crash | an attempt that ended with its process |
//! | signal | a named message to one job, sent in the sender's transaction |
//! | outcome | what the handler said: ok, failure, panic, timeout, cancelled, snooze, parked |
//! | verdict | what is written for it: complete, retry, dead, snooze, park, release, cancel, expire |
//! | settle | to write verdicts |
//! | recover | to take back the leases of workers that stopped beating |
//! | report | what a running attempt says of itself: progress, stage, events, a checkpoint for the next attempt |
//! | expiry | the time by which a job has to begin; one that has not is over, as expired, and is not run |
//! | begun | an attempt or a crash was charged: a job that was given back uncharged has not begun |
//! | wait | to await that a job is over, and what came of it |
//! | durable job | a job of a type whose attempts may end half-way, and go on |
//! | flow, node, edge | jobs that are enqueued together; one of them, under a name; that one waits for another |
//! | step | a named part of a durable job; done once it is journaled |
//! | journal | the steps of one job that are done |
//! | dead letter | a job that will not be tried again by itself, kept until someone requeues or discards it |
//! | fair key | jobs of one type with different fair keys take turns, however many each has waiting |
//! | line | the jobs of one fair key that wait, in the order in which they became ready |
//! | uniqueness key | what makes a job unique: while another holds it, an enqueue changes that one or nothing |
//! | capacity | how many jobs may wait in a queue before an enqueue is refused |
//! | pause | an operator's word that nothing of a queue, a job type or everything begins until it is resumed; jobs wait as ready |
//! | limit | how many jobs of a type, a shared name or a queue may run at once, or begin in a time, over all workers |
//! | permit | leave to run under a limit; a job holds one of each of its limits as long as a lease lists it |
//! | schedule | what enqueues a job of its own at the times of a cron expression, or at every interval |
//! | tick | one of these times; it has one job at most |
//! | store | one schema in one database with our tables; `queue` by default |

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

/// For implementations of [`Middleware`].
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
/// The driver, of the version whose connections an enqueue takes.
pub use sqlx;
pub use trace::TraceRelation;

/// What runs attempts is made of these: for `queue-worker`, which stands on them, and nobody else. They change without notice.
#[doc(hidden)]
pub mod runner {
    pub use crate::{
        attempt::{AttemptEnd, ClaimedJob, Halt, OpenLog, run, run_batch},
        context::{
            Backend, ChildEntry, ChildStatus, ChunkEntry, CloseEntry, CommitResult, Fence, JournaledStep, LentTransaction, LogEntry,
            MapProgress, OwnedTransaction, ReceiveResult, Report, ReportEntry, ReportSender, Shared, SignalEntry, States, StepEntry,
            StopRequest, WriteResult,
        },
        define::{Anew, Counted, Due, Ending, OrderingKey, Tells, Timing, stored_type, type_and_version},
        program::{BUNDLED, program_name, remember_program},
        results::percent,
        schema::{
            Channel, ClusterNode, Listening, Migration, NO_SESSION, Owner, is_refused_setting, locate,
            migrate::{migrate_with, verify_worker},
            mixes_up, place, relay,
        },
    };
}
