//! Limits in the request and in the result of a claim.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::live::Notifier;

/// Part of a claim request that concerns limits.
#[derive(Clone)]
pub(crate) struct LimitRequest {
    /// Ids of the limits (`gate` rows), sorted.
    pub(crate) gates: Arc<[i64]>,
    /// Whether any of the limits is keyed.
    pub(crate) keyed: bool,
    /// Leases with finished jobs to report.
    pub(crate) freed: Vec<Uuid>,
    /// Notifier called when a job of the claim finishes and releases its permits.
    pub(crate) notifier: Arc<Notifier>,
    /// Expected time until the claimed jobs start, as used by rate limits.
    pub(crate) slack: Duration,
    /// First permit to read of each limit, with the time at which it was learned. Not valid on another server.
    pub(crate) floors: Option<(Vec<i64>, Instant)>,
}

/// Start deadline of jobs claimed under a rate limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartDeadline {
    /// End of the time in which the rate limit counts the start. No job of the claim starts later.
    pub(crate) until: Instant,
    /// Time spent since the claim.
    pub(crate) spent: Duration,
}

impl std::fmt::Debug for LimitRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimitRequest").field("gates", &self.gates).field("freed", &self.freed).finish_non_exhaustive()
    }
}

/// Reason why a claim returned no more jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum LimitOutcome {
    /// All lanes were empty, or the claim returned as many jobs as requested.
    #[default]
    Open,
    /// No permit is free.
    Full,
    /// The next permit is free after the duration.
    Later(Duration),
    /// No waiting key has a permit. A permit for the first key may be free after the duration.
    Keys(Option<Duration>),
    /// No scanned key has a permit, and only this fraction of the waiting keys was scanned. `u64::MAX` stands for all keys.
    More(u64),
    /// Some worker has not acknowledged the limit yet.
    Unknown,
    /// The limit no longer exists.
    Gone,
    /// A session other than a claim has locked the limit's row.
    Locked,
}
