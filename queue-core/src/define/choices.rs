//! Options of `#[job(..)]` with a fixed set of values.

use std::time::Duration;

/// Named priorities. Jobs of higher priority run first. Any `i16` is a valid priority.
///
/// ```no_run
/// use queue_core::{Job, Priority, job};
/// use serde::{Deserialize, Serialize};
///
/// #[job(send_only, priority = Priority::BACKFILL)]
/// #[derive(Serialize, Deserialize)]
/// struct Resize { photo: u64 }
///
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// Resize { photo: 7 }.enqueue(pool).await?; // background work
/// Resize { photo: 8 }.enqueue(pool).priority(Priority::EXPLICIT).await?; // a user is waiting
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Priority;

impl Priority {
    /// Priority of work that a user has requested and is waiting for.
    pub const EXPLICIT: i16 = 150;
    /// Default priority, for work that the program itself has discovered and for which no user is waiting.
    pub const DISCOVERED: i16 = 100;
    /// Priority of background work, which can wait until no job of higher priority is ready.
    pub const BACKFILL: i16 = 30;
}

/// Retention of completed, cancelled and expired jobs.
///
/// ```
/// use queue_core::{JobType, job, options::Retain};
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// #[job(send_only, retain = "30d")]
/// #[derive(Serialize, Deserialize)]
/// struct Invoice { number: u32 }
///
/// assert_eq!(Invoice::OPTIONS.retain, Retain::For(Duration::from_hours(30 * 24)));
/// ```
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

/// Durability of a commit. Determines whether the commit waits for the WAL flush.
///
/// ```
/// use queue_core::{JobType, job, options::Durability};
/// use serde::{Deserialize, Serialize};
///
/// #[job(send_only, durability = relaxed)]
/// #[derive(Serialize, Deserialize)]
/// struct PageView { path: String }
///
/// assert_eq!(PageView::OPTIONS.durability, Durability::Relaxed);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The commit waits for the WAL flush. A committed transaction survives a crash of the database server.
    #[default]
    Full,
    /// The commit does not wait for the WAL flush. A crash of the database server may lose transactions that committed within three times
    /// `wal_writer_delay` (0.6 s by default) before the crash. If an enqueue is relaxed, acknowledged jobs may be lost. If verdicts are
    /// relaxed, finished jobs may run again. A transaction is never written partially.
    Relaxed,
}

/// Policy for an ordering key whose first job has become a dead letter.
///
/// ```
/// use queue_core::{JobType, job, options::KeyPolicy};
/// use serde::{Deserialize, Serialize};
///
/// #[job(send_only, key = self.account, key_policy = skip)]
/// #[derive(Serialize, Deserialize)]
/// struct Booking { account: u32 }
///
/// assert_eq!(Booking::OPTIONS.key_policy, KeyPolicy::Skip);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyPolicy {
    /// Blocks the key: none of its jobs runs until an operator requeues or discards the dead letter. A requeued dead letter keeps its
    /// position.
    #[default]
    Block,
    /// Skips the dead letter and runs the key's next job. A requeued dead letter moves behind all other jobs of the key.
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
