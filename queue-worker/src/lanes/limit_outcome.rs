//! Parts of a claim's request and result that concern limits.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::live::Notifier;

/// Part of a claim request that concerns limits.
#[derive(Clone)]
pub(crate) struct LimitRequest {
    /// Sorted ids of the limits (`limiter` rows).
    pub(crate) limit_ids: Arc<[i64]>,
    /// Whether any of the limits is keyed.
    pub(crate) keyed: bool,
    /// Leases with finished jobs. The claim passes these leases to the database, which frees the permits of the finished jobs.
    pub(crate) freed: Vec<Uuid>,
    /// Notifier that is called when a job of the claim finishes and releases its permits.
    pub(crate) notifier: Arc<Notifier>,
    /// Expected time from the claim until its jobs start. Used by rate limits.
    pub(crate) slack: Duration,
    /// For each limit, the position of the first permit that the claim reads, and the time at which the claim that returned these positions
    /// was sent. `None` if no positions are known. The positions are not valid on another server.
    pub(crate) floors: Option<(Vec<i64>, Instant)>,
}

/// Start deadline of jobs claimed under a rate limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartDeadline {
    /// End of the period in which the rate limit counts the start of the jobs. No job of the claim starts after this time.
    pub(crate) until: Instant,
    /// Time from the claim to the end of its second round trip. The second round trip waits until the permits and jobs are durable.
    pub(crate) spent: Duration,
}

impl std::fmt::Debug for LimitRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimitRequest").field("limit_ids", &self.limit_ids).field("freed", &self.freed).finish_non_exhaustive()
    }
}

/// Reason why a claim stopped taking jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum LimitOutcome {
    /// No limit stopped the claim. All lanes were empty, or the claim returned as many jobs as requested.
    #[default]
    Open,
    /// No permit is free.
    Full,
    /// The next permit becomes free after the given duration.
    Later(Duration),
    /// No key with waiting jobs has a free permit. Contains the time until one of the keys may have a free permit, if known.
    Keys(Option<Duration>),
    /// No scanned key has a free permit. Contains the scanned fraction of the keys with waiting jobs, in units of 2^-64. `u64::MAX`
    /// stands for all keys.
    More(u64),
    /// Some workers have not acknowledged the limit yet.
    Unknown,
    /// The limit no longer exists.
    Gone,
    /// The limit's row is locked by a session that is not claiming jobs.
    Locked,
}
