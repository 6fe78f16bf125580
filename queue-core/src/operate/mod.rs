//! Operations of a [`Queue`]: list, count, pause, cancel and requeue jobs, set limits, and read statistics.
//!
//! Web servers, dashboards and the command line are built on these methods. [`Queue::jobs`] selects jobs, [`Queue::job`] selects one job,
//! and the other methods concern the whole store. [`Queue::new`] takes a pool, and [`Queue::on`] takes a connection or transaction. Job
//! handles also have the operations on one job. Their methods take a connection: `handle.cancel(&mut tx)`.
//!
//! | subject | methods of [`Queue`] |
//! |---|---|
//! | jobs | [`jobs`](Queue::jobs), [`job`](Queue::job), [`apply_to`](Queue::apply_to), [`jobs_of_key`](Queue::jobs_of_key), [`enqueue_json`](Queue::enqueue_json) |
//! | numbers | [`counts`](Queue::counts), [`busiest`](Queue::busiest), [`oldest`](Queue::oldest), [`backlog`](Queue::backlog), [`history`](Queue::history), [`dead_groups`](Queue::dead_groups) |
//! | queues | [`queues`](Queue::queues), [`pause`](Queue::pause), [`resume`](Queue::resume), [`pauses`](Queue::pauses), [`set_capacity`](Queue::set_capacity), [`capacities`](Queue::capacities) |
//! | limits, fairness | [`limits`](Queue::limits), [`set_limit`](Queue::set_limit), [`set_limit_key`](Queue::set_limit_key), [`weights`](Queue::weights), [`set_weight`](Queue::set_weight) |
//! | schedules | [`schedules`](Queue::schedules), [`schedule`](Queue::schedule) |
//! | workers | [`workers`](Queue::workers), [`unserved`](Queue::unserved) |
//! | one job | [`find`](QueueJob::find), [`status`](QueueJob::status), [`wait`](QueueJob::wait), [`watch`](QueueJob::watch), [`cancel`](QueueJob::cancel), [`requeue`](QueueJob::requeue), [`signal`](QueueJob::signal) |
//! | diagnosis | [`doctor`](Queue::doctor), [`audit`](Queue::audit), [`why`](QueueJob::why) |
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
//! use queue_core::{JobState, Queue};
//!
//! let queue = Queue::new(&pool);
//! for pause in queue.pauses().await? {
//!     println!("{} is paused since {}", pause.scope, pause.paused_at);
//! }
//! let outcome = queue.jobs().queue("mail").state(JobState::Dead).requeue().await?;
//! println!("{} jobs requeued", outcome.done);
//! # Ok(()) }
//! ```
//!
//! The cost of a query is bounded regardless of the size of the history, except for the `*_exactly` methods. Operations on all jobs that a
//! filter selects run in batches. No operation runs a job or removes a job from a lease. Cancelling a running job only marks the job. The
//! job's worker then ends the attempt. Changes are made by SQL functions, which can be called from any language.

mod operation;
mod audit;
mod bulk;
mod capacity;
mod children;
mod counts;
mod dead;
mod doctor;
mod enqueue;
mod filter;
mod fingerprint;
mod flow;
mod gathers;
mod histogram;
mod history;
mod job;
mod jobs;
mod limit;
mod list;
mod logs;
mod patience;
mod pause;
mod record;
mod rejection;
mod signal;
mod steps;
mod unserved;
mod walk;
mod weight;
mod why;

pub use self::{
    audit::{AuditRecord, Note},
    bulk::{BulkOperation, BulkOutcome},
    capacity::Capacity,
    children::JobChild,
    counts::{Backlog, Busiest, Count, Oldest, StateCount, WorkerRecord},
    dead::{DeadGroup, DeadGroups},
    doctor::{Checkup, Diagnosis, Finding, FindingKind, Severity},
    filter::Filter,
    flow::FlowNode,
    gathers::JobGather,
    histogram::Histogram,
    history::{AttemptStatistics, HistoryRange},
    jobs::Jobs,
    limit::{LimitKey, LimitStatus, LimitValues, LimitWait},
    list::{KeyQueueEntry, Page},
    logs::AttemptLog,
    operation::{Operation, OperationOutcome},
    patience::Patience,
    pause::{AwaitedWorker, Pause, Scope},
    record::{AttemptFailure, JobRecord},
    signal::{JobSignal, SignalOutcome},
    steps::JobStep,
    unserved::Unserved,
    weight::Weight,
    why::{Cause, CauseKind, Why},
};
pub use crate::define::UnknownState;
pub use crate::results::{OnConnection, Queue, QueueConnection, QueueJob};
