//! Options of `#[job(..)]` with a fixed set of values.

use std::time::Duration;

/// Named priorities. Jobs of higher priority run first. Any `i16` is a valid priority.
#[derive(Debug)]
pub struct Priority;

impl Priority {
    /// Priority of work that a user has requested and is waiting for.
    pub const EXPLICIT: i16 = 150;
    /// Default priority of a job.
    pub const DISCOVERED: i16 = 100;
    /// Priority of background work, which may run when no other job is ready.
    pub const BACKFILL: i16 = 30;
}

/// Retention of a completed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retain {
    /// Keeps the job's record and output for the retention of the store, which is 7 days by default.
    Default,
    /// Keeps no record: the statement that completes the job deletes it. Dead letters are still kept.
    None,
    /// Keeps the job's record and output for the given duration after the job has ended.
    For(Duration),
}

impl Retain {
    /// Returns the retention of the history, or `None` if the retention of the store applies.
    pub const fn history(self) -> Option<Duration> {
        match self {
            Self::For(history) => Some(history),
            _ => None,
        }
    }
}

/// Durability of a commit: whether the commit waits until the transaction is written to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The commit waits until the transaction is written to disk. A committed transaction survives a crash of the database server.
    #[default]
    Full,
    /// The commit does not wait for the disk. A crash of the database server may lose the transactions of the last moments: up to three
    /// times `wal_writer_delay`, usually 0.6 s. If an enqueue is relaxed, acknowledged jobs may be lost. If verdicts are relaxed, finished
    /// jobs may run again. A transaction is never written partially.
    Relaxed,
}

/// Policy for an ordering key whose first job has become a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyPolicy {
    /// The key is blocked: no job of the key runs until an operator requeues or discards the dead letter. A requeued dead letter keeps its
    /// position.
    #[default]
    Block,
    /// The key continues with the next job. A requeued dead letter moves to the end of the key.
    Skip,
}

impl KeyPolicy {
    /// Returns the SQL name of the policy.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Skip => "skip",
        }
    }
}
