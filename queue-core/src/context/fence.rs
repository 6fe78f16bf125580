//! What an attempt may write under, and what it journals under that.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::define::{JobId, OrderingKey};

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
