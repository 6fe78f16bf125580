//! Options of `#[job(..)]` with a fixed set of values.

use std::time::Duration;

/// Named priorities. Jobs of higher priority run first. Any `i16` is a valid priority.
#[derive(Debug)]
pub struct Priority;

impl Priority {
    /// Priority of work that a user has requested and is waiting for.
    pub const EXPLICIT: i16 = 150;
    /// Default priority, for work that the program has discovered by itself and no user is waiting for.
    pub const DISCOVERED: i16 = 100;
    /// Priority of background work, which can wait until no job of higher priority is ready.
    pub const BACKFILL: i16 = 30;
}

/// Retention of a completed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retain {
    /// Keeps the job's record and output for the store's retention period, which is 7 days by default.
    Default,
    /// Keeps no record of a completed job: the statement that completes the job also deletes it. Dead letters are still kept.
    None,
    /// Keeps the job's record and output for the given duration after the job has ended.
    For(Duration),
}

impl Retain {
    /// Returns the duration of [`Retain::For`], or `None` for the other values.
    pub const fn history(self) -> Option<Duration> {
        match self {
            Self::For(history) => Some(history),
            _ => None,
        }
    }
}

/// Durability of a commit. Determines whether the commit waits until the transaction is written to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The commit waits until the transaction is written to disk. A committed transaction survives a crash of the database server.
    #[default]
    Full,
    /// The commit does not wait for the disk. A crash of the database server may lose transactions that committed within three times
    /// `wal_writer_delay` (0.6 s by default) before the crash. If an enqueue is relaxed, acknowledged jobs may be lost. If verdicts are
    /// relaxed, finished jobs may run again. A transaction is never written partially.
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
    /// The key's next job runs. A requeued dead letter moves behind all other jobs of the key.
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
