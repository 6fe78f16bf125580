//! Fence of an attempt's writes, and the journal entries written under it.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::define::{Dependents, JobId, OrderingKey};

/// Fence under which the verdict of an attempt is written.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    pub token: Uuid,
    pub id: JobId,
    pub lane: i64,
    pub attempt: i16,
    pub crashes: i16,
    /// Whether a completed job leaves a record.
    pub keep: bool,
    pub dependents: Dependents,
    pub key: Option<OrderingKey>,
    pub since: Instant,
}

/// Finished step of a journal.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct JournaledStep {
    pub name: String,
    /// Attempt from which attempts are counted again: the one that finished the step, unless it was charged and used up none.
    pub attempt: i16,
    /// JSON text; `None` for null.
    pub output: Option<String>,
    /// Remaining time of a sleep in milliseconds; negative if it has ended.
    pub left_ms: Option<f64>,
}

/// Step to journal.
#[doc(hidden)]
#[derive(Debug)]
pub struct StepEntry {
    pub fence: Fence,
    pub name: String,
    pub ran: Duration,
    /// Duration, if the step is a sleep.
    pub wait: Option<Duration>,
    /// JSON text; `None` for null.
    pub output: Option<String>,
}

/// Request for the next signal with a name, which becomes a step.
#[doc(hidden)]
#[derive(Debug)]
pub struct SignalEntry {
    pub fence: Fence,
    /// Name of the step.
    pub name: String,
    /// Name of the signal.
    pub signal: String,
    /// Name of the step that stores the timeout of the wait.
    pub end: Option<String>,
}

/// Result of a request for a signal.
#[doc(hidden)]
#[derive(Debug)]
pub enum ReceiveResult {
    /// A signal was journaled. Its payload is JSON text; `None` for null.
    Signal(Option<String>),
    /// The wait timed out, and that is journaled.
    Over,
    /// Neither a signal nor a timeout yet.
    Nothing,
    /// The database was unreachable or its answer was lost: a result may be journaled, now or soon.
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
    /// Name of the step.
    pub name: String,
    pub job_type: &'static str,
    /// JSON text.
    pub payload: String,
    /// Options of `queue.enqueue`, as JSON text.
    pub options: String,
}

/// State of a child, as loaded by its parent.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct ChildStatus {
    pub id: JobId,
    /// Final state as stored in the tables; `None` while the child has not ended.
    pub state: Option<String>,
    pub attempts: i16,
    /// JSON text.
    pub output: Option<String>,
    pub error: Option<String>,
}

/// Chunk of jobs of a map.
#[doc(hidden)]
#[derive(Debug)]
pub struct ChunkEntry {
    pub fence: Fence,
    /// Name of the step.
    pub name: String,
    /// Number of the chunk, starting at 0.
    pub chunk: i32,
    /// Position of its first job.
    pub first: i64,
    pub ids: Vec<JobId>,
    /// Maximum number of concurrent jobs.
    pub most: Option<i32>,
}

/// Total of a map whose jobs are all spawned.
#[doc(hidden)]
#[derive(Debug)]
pub struct CloseEntry {
    pub fence: Fence,
    /// Name of the step.
    pub name: String,
    pub total: i64,
}

/// Progress of a map, as loaded by its job.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, sqlx::FromRow)]
pub struct MapProgress {
    /// Number of jobs; `None` while more may be spawned.
    pub total: Option<i64>,
    /// Number of jobs not counted as finished, plus one while more may be spawned.
    pub need: i64,
    pub completed: i64,
    pub dead: i64,
    /// Cancelled or expired.
    pub cancelled: i64,
    pub chunks: i32,
    /// Number of jobs in the chunks.
    pub spawned: i64,
}

/// Step that was just written.
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
