//! Fence that rejects the writes of an attempt after its lease is lost. This module also contains the fenced requests to the journal, and
//! their results.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::define::{Dependents, JobId, OrderingKey};

/// Lease and job that fence the writes of an attempt. The database rejects a write if the lease no longer lists the job.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    pub token: Uuid,
    pub id: JobId,
    pub lane: i64,
    pub attempt: i16,
    pub crashes: i16,
    /// Whether a record of the job remains after the job has completed.
    pub keep: bool,
    pub dependents: Dependents,
    pub key: Option<OrderingKey>,
    pub since: Instant,
}

/// Finished step, as loaded from the journal.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct JournaledStep {
    pub name: String,
    /// Number of the attempt that journaled the step, with one exception. A release of a job with an expiry time charges attempt 1,
    /// because a job without a charged attempt could expire. So that this charge does not use up a retry, a step that attempt 1 of such a
    /// job journaled has the number 2. If attempt 1 failed or crashed after the step, the number is 1.
    pub attempt: i16,
    /// Output as JSON text. `None` represents JSON null.
    pub output: Option<String>,
    /// Remaining time of a sleep in milliseconds. Negative if the sleep has ended, `None` if the step is not a sleep.
    pub left_ms: Option<f64>,
}

/// Step to write to the journal.
#[doc(hidden)]
#[derive(Debug)]
pub struct StepEntry {
    pub fence: Fence,
    pub name: String,
    pub ran: Duration,
    /// Duration of the sleep, if the step is a sleep.
    pub wait: Option<Duration>,
    /// Output as JSON text. `None` represents JSON null.
    pub output: Option<String>,
}

/// Request to receive the next signal with the given name and to journal it as a step.
#[doc(hidden)]
#[derive(Debug)]
pub struct SignalEntry {
    pub fence: Fence,
    /// Name of the step that receives the signal.
    pub name: String,
    /// Name of the signal to receive.
    pub signal: String,
    /// Name of the step that stores the timeout of the wait; `None` without a timeout.
    pub end: Option<String>,
}

/// Result of a request to receive a signal.
#[doc(hidden)]
#[derive(Debug)]
pub enum ReceiveResult {
    /// A signal was journaled. The value is the signal's payload as JSON text; `None` represents JSON null.
    Signal(Option<String>),
    /// The wait timed out, and the timeout was journaled.
    Over,
    /// Neither a signal nor a timeout has occurred yet.
    Nothing,
    /// The database was unreachable, the lease stayed locked, or the response was lost. A signal or timeout may have been journaled, or
    /// may be journaled later.
    Unknown,
    /// The lease no longer lists the job.
    Refused,
    /// The database rejected the statement.
    Failed(String),
}

/// Child to spawn for a durable job.
#[doc(hidden)]
#[derive(Debug)]
pub struct ChildEntry {
    pub fence: Fence,
    /// Name of the step that spawns the child.
    pub name: String,
    pub job_type: &'static str,
    /// Payload of the child as JSON text.
    pub payload: String,
    /// Options of `queue.enqueue`, as JSON text.
    pub options: String,
}

/// State of a child, as loaded by its parent.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct ChildStatus {
    pub id: JobId,
    /// Final state, by its name in the database. `None` while the child has not ended.
    pub state: Option<String>,
    pub attempts: i16,
    /// Output as JSON text, or `None` if the child has no output.
    pub output: Option<String>,
    pub error: Option<String>,
}

/// Batch of a map's jobs.
#[doc(hidden)]
#[derive(Debug)]
pub struct ChunkEntry {
    pub fence: Fence,
    /// Name of the step that spawns the map.
    pub name: String,
    /// Number of the batch, starting at 0.
    pub chunk: i32,
    /// Position of the batch's first job within the map.
    pub first: i64,
    pub ids: Vec<JobId>,
    /// Maximum number of concurrent jobs of the map; `None` for no limit.
    pub most: Option<i32>,
}

/// Journal entry that closes a map after all jobs of the map are spawned.
#[doc(hidden)]
#[derive(Debug)]
pub struct CloseEntry {
    pub fence: Fence,
    /// Name of the step that spawned the map.
    pub name: String,
    pub total: i64,
}

/// Progress of a map, as loaded by the job that spawned the map.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, sqlx::FromRow)]
pub struct MapProgress {
    /// Total number of jobs; `None` until all jobs are spawned.
    pub total: Option<i64>,
    /// Number of unfinished jobs, plus one until all jobs are spawned. The additional one keeps the number above zero while jobs are still
    /// being spawned.
    pub need: i64,
    pub completed: i64,
    pub dead: i64,
    /// Number of cancelled or expired jobs.
    pub cancelled: i64,
    pub chunks: i32,
    /// Number of jobs in all recorded batches. Zero unless the caller requested this number.
    pub spawned: i64,
}

/// Step that was just written to the database.
pub(super) struct WrittenStep {
    pub(super) attempt: i16,
    pub(super) name: String,
    pub(super) output: Option<String>,
    pub(super) wait: Option<Duration>,
}

impl WrittenStep {
    pub(super) fn of(entry: &StepEntry) -> Self {
        Self { attempt: entry.fence.attempt, name: entry.name.clone(), output: entry.output.clone(), wait: entry.wait }
    }
}
