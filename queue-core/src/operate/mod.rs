//! Operations for administrators of a store, such as listing, counting, pausing, cancelling and requeueing jobs.
//!
//! Web servers, dashboards and the command line are built on this module. Operations on one job are methods of [`JobRef`](crate::JobRef),
//! and therefore of every handle. Operations on many jobs are functions that take a connection, a [`Store`](crate::Store) and usually a
//! [`Filter`]. Changes are made by SQL functions, which can be called from any language.
//!
//! Except in the `*_exactly` functions, queries have bounded cost, regardless of the size of the history. Changes to all jobs of a filter
//! are made in batches. No operation runs a job or removes a job from a lease. Cancelling a running job only marks the job. The job's
//! worker then ends the attempt.

mod act;
mod all;
mod audit;
mod capacity;
mod children;
mod counts;
mod dead;
mod doctor;
mod filter;
mod fingerprint;
mod flow;
mod gathers;
mod histogram;
mod history;
mod job;
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
    act::{Act, OperationOutcome},
    all::{ActAll, BulkOutcome, act_all, act_on, count_matching, count_matching_up_to},
    audit::{AuditRecord, Note, audit, record_operation},
    capacity::{Capacity, capacities, capacities_exactly, is_queue, queues, set_capacity},
    children::{JobChild, children},
    counts::{
        Backlog, Busiest, Count, Oldest, StateCount, WorkerRecord, backlog, busiest, counts, counts_exactly, now, oldest, oldest_of,
        workers,
    },
    dead::{DeadGroup, DeadGroups, dead_groups},
    doctor::{Checkup, Diagnosis, Finding, FindingKind, Severity, doctor},
    filter::Filter,
    flow::{FlowNode, cancel_flow, first_nodes, flow},
    gathers::{JobGather, gathers},
    histogram::Histogram,
    history::{AttemptStatistics, HistoryRange, history},
    job::{cancel_all, discard_all, requeue_all, reschedule_all, run_now_all, set_priority_all, snooze_all},
    limit::{LimitKey, LimitStatus, LimitValues, LimitWait, limit_keys, limits, set_limit, set_limit_key, unset_limit, waits_for},
    list::{KeyQueueEntry, Page, add_failures, in_line, list},
    logs::{AttemptLog, logs},
    patience::{Patience, list_patiently},
    pause::{AwaitedWorker, Pause, Scope, job_types, pause, pause_awaits, pauses, resume, until_paused},
    record::{AttemptFailure, JobRecord},
    signal::{JobSignal, SignalOutcome, signals},
    steps::{JobStep, steps},
    unserved::{Unserved, unserved, unserved_of},
    weight::{Weight, set_weight, weights},
    why::{Cause, CauseKind, Why, why},
};
