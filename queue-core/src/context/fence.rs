//! What an attempt may write under, and what it journals under that.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::define::{JobId, OrderingKey, Tells};

/// What the verdict of an attempt is written under.
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
    pub tells: Tells,
    pub key: Option<OrderingKey>,
    pub since: Instant,
}

/// A step that an attempt has finished.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct JournaledStep {
    pub name: String,
    /// From which attempt on they count again: the one that finished it, unless that one was charged and used up none.
    pub attempt: i16,
    /// JSON text; none for nothing.
    pub output: Option<String>,
    /// Of a sleep: how long it goes on, in ms; negative if it is over.
    pub left_ms: Option<f64>,
}

/// A step that is to be journaled.
#[doc(hidden)]
#[derive(Debug)]
pub struct StepEntry {
    pub fence: Fence,
    pub name: String,
    pub ran: Duration,
    /// Of a sleep: how long it is.
    pub wait: Option<Duration>,
    /// JSON text; none for nothing.
    pub output: Option<String>,
}

/// What a durable job asks for: the next signal of a name, which becomes a step.
#[doc(hidden)]
#[derive(Debug)]
pub struct SignalEntry {
    pub fence: Fence,
    /// The step's name.
    pub name: String,
    /// The signal's.
    pub signal: String,
    /// The step whose time ends the wait.
    pub end: Option<String>,
}

/// What came of that.
#[doc(hidden)]
#[derive(Debug)]
pub enum Heard {
    /// A signal, which is journaled: its payload as JSON text, none for nothing.
    Signal(Option<String>),
    /// The wait is over, and that is journaled.
    Over,
    /// Neither.
    Nothing,
    /// Nobody could be asked, or the answer was lost: it may be journaled, or be so soon.
    Unknown,
    /// The lease does not have the job any more.
    Refused,
    /// The database does not take it.
    Failed(String),
}

/// A child that a durable job spawns.
#[doc(hidden)]
#[derive(Debug)]
pub struct ChildEntry {
    pub fence: Fence,
    /// The step's name.
    pub name: String,
    pub job_type: &'static str,
    /// JSON text.
    pub payload: String,
    /// As `queue.enqueue` takes them, as JSON text.
    pub options: String,
}

/// A child, as its parent sees it.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct ChildLook {
    pub id: JobId,
    /// What it came to, as the tables say it; none if it is not over.
    pub state: Option<String>,
    pub attempts: i16,
    /// JSON text.
    pub output: Option<String>,
    pub error: Option<String>,
}

/// A chunk of jobs that a durable job maps.
#[doc(hidden)]
#[derive(Debug)]
pub struct ChunkEntry {
    pub fence: Fence,
    /// The step's name.
    pub name: String,
    /// Which chunk it is, from 0 on.
    pub chunk: i32,
    /// The place of its first job.
    pub first: i64,
    pub ids: Vec<JobId>,
    /// How many may run at once.
    pub most: Option<i32>,
}

/// That all the jobs of a map are spawned.
#[doc(hidden)]
#[derive(Debug)]
pub struct CloseEntry {
    pub fence: Fence,
    /// The step's name.
    pub name: String,
    pub total: i64,
}

/// What a map has come to, as its job sees it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, sqlx::FromRow)]
pub struct GatherLook {
    /// How many jobs; none while there may be more.
    pub total: Option<i64>,
    /// How many are not counted as over, and one if there may be more.
    pub need: i64,
    pub completed: i64,
    pub dead: i64,
    /// Or expired.
    pub cancelled: i64,
    pub chunks: i32,
    /// How many jobs there are in them.
    pub spawned: i64,
}

/// What is known of a step once it is written.
pub(super) struct Finished {
    pub(super) attempt: i16,
    pub(super) name: String,
    pub(super) output: Option<String>,
    pub(super) wait: Option<Duration>,
}

impl Finished {
    pub(super) fn of(entry: &StepEntry) -> Self {
        Self { attempt: entry.fence.attempt, name: entry.name.clone(), output: entry.output.clone(), wait: entry.wait }
    }
}
