//! What options of `#[job(..)]` choose among.

use std::time::Duration;

/// Named tiers of priority. Any other `i16` is as good; higher runs first.
#[derive(Debug)]
pub struct Priority;

impl Priority {
    /// Somebody asked for this and waits for it.
    pub const EXPLICIT: i16 = 150;
    /// Found in passing. The default.
    pub const DISCOVERED: i16 = 100;
    /// May run whenever nothing else does.
    pub const BACKFILL: i16 = 30;
}

/// What is kept of a job that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retain {
    /// Its record and output, until the store's retention is over (7 days unless set otherwise).
    Default,
    /// Nothing: the job is deleted by the statement that completes it. Dead letters are kept all the same.
    None,
    /// Its record and output, for this long after its end.
    For(Duration),
}

impl Retain {
    /// How long the history is kept, if not as long as the store's.
    pub const fn history(self) -> Option<Duration> {
        match self {
            Self::For(history) => Some(history),
            _ => None,
        }
    }
}

/// Whether a commit waits until it is on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// It does: what was acknowledged survives a crash of the database's machine.
    #[default]
    Full,
    /// It does not. A crash of the server may lose what was committed in the last moments (three times `wal_writer_delay`, so usually 0.6 s).
    /// For an enqueue: jobs that were acknowledged may be gone. For verdicts: jobs that were done may run again. Nothing is ever half-written.
    Relaxed,
}

/// What becomes of an ordering key while the job at its head is a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyPolicy {
    /// The key waits: nothing of it runs until somebody requeues that job, which keeps its place, or discards it.
    #[default]
    Block,
    /// The key goes on with the next job. Requeued, the dead one goes to the end of its key.
    Skip,
}

impl KeyPolicy {
    /// Its name in SQL.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Skip => "skip",
        }
    }
}
