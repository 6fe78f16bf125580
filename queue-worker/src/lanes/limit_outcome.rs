//! The part of a claim's request and result that concerns limits.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::live::Notifier;

/// The part of a claim's request that concerns limits.
#[derive(Clone)]
pub(crate) struct LimitRequest {
    /// Ids of the limits (`gate` rows), sorted.
    pub(crate) gates: Arc<[i64]>,
    /// Whether any of them is keyed.
    pub(crate) keyed: bool,
    /// Leases with finished jobs to report.
    pub(crate) freed: Vec<Uuid>,
    /// Notified when a job of the claim finishes and releases its permits.
    pub(crate) notifier: Arc<Notifier>,
    /// Expected time until the jobs start, for rate limits.
    pub(crate) slack: Duration,
    /// First permit to read of each limit, and when it was learned. Invalid on another server.
    pub(crate) floors: Option<(Vec<i64>, Instant)>,
}

/// When jobs claimed under a rate limit may start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartDeadline {
    /// Counted until then; jobs do not start later.
    pub(crate) until: Instant,
    /// Time since the claim.
    pub(crate) spent: Duration,
}

impl std::fmt::Debug for LimitRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimitRequest").field("gates", &self.gates).field("freed", &self.freed).finish_non_exhaustive()
    }
}

/// Why a claim returned no more jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum LimitOutcome {
    /// All lanes were empty, or the claim was full.
    #[default]
    Open,
    /// No permit is free.
    Full,
    /// The next permit is free after this duration.
    Later(Duration),
    /// No waiting key has a permit. The first one may have one after this duration.
    Keys(Option<Duration>),
    /// The same, but only this fraction of the waiting keys was scanned; `u64::MAX` is all of them.
    More(u64),
    /// Some worker has not acknowledged the limit yet.
    Unknown,
    /// The limit no longer exists.
    Gone,
    /// Another session that is no claim has locked the limit's row.
    Locked,
}
