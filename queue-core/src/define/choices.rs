//! Values of `#[job(..)]` options that are chosen from a fixed set.

use std::time::Duration;

/// Named priorities. Jobs of higher priority run first. Any `i16` is valid.
#[derive(Debug)]
pub struct Priority;

impl Priority {
    /// Priority of work that a user requested and waits for.
    pub const EXPLICIT: i16 = 150;
    /// Default priority, for work that was discovered in passing.
    pub const DISCOVERED: i16 = 100;
    /// Priority of background work, which may run when nothing else is ready.
    pub const BACKFILL: i16 = 30;
}

/// How long a completed job is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retain {
    /// Keeps the job's record and output for the retention of the store: 7 days unless set otherwise.
    Default,
    /// Keeps nothing: the statement that completes the job deletes it. Dead letters are kept nevertheless.
    None,
    /// Keeps the job's record and output for this duration after its end.
    For(Duration),
}

impl Retain {
    /// Returns how long the history is kept, if it has a retention of its own.
    pub const fn history(self) -> Option<Duration> {
        match self {
            Self::For(history) => Some(history),
            _ => None,
        }
    }
}

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The commit waits. An acknowledged transaction survives a crash of the database server.
    #[default]
    Full,
    /// The commit does not wait. A crash of the server may lose the transactions of the last moments: up to three times `wal_writer_delay`,
    /// usually 0.6 s. For an enqueue: acknowledged jobs may be lost. For verdicts: finished jobs may run again. No transaction is ever
    /// written in part.
    Relaxed,
}

/// Whether a dead letter at the head of an ordering key blocks the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyPolicy {
    /// The key is blocked: none of its jobs runs until an operator requeues the dead letter, which keeps its position, or discards it.
    #[default]
    Block,
    /// The key continues with the next job. A dead letter that is requeued goes to the end of its key.
    Skip,
}

impl KeyPolicy {
    /// Returns its name in SQL.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Skip => "skip",
        }
    }
}
