//! State of pauses and of a limit, and what each worker has read of it.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::op::{LANES, LIMITED, SCOPES};

/// Active pauses, and the concurrency of the limited lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// Number of the pause of each scope.
    pub(super) paused: BTreeMap<usize, i64>,
    pub(super) limit: Option<Bound>,
    /// Highest number that each worker has acknowledged.
    pub(super) seen: BTreeMap<Uuid, i64>,
    pub(super) newest: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) most: usize,
    pub(super) number: i64,
    /// Whether the limit also counts jobs that started before it. By then all live workers had acknowledged it.
    pub(super) adopted: bool,
    /// Number of jobs that the limit counts per lease.
    pub(super) permits: BTreeMap<Uuid, usize>,
}

/// A claim under the limit.
pub(super) struct LimitedClaim<'a> {
    pub(super) most: usize,
    /// Leases that the claim reports as having finished jobs.
    pub(super) freed: &'a [Uuid],
    /// Whether to read all leases again if there is no free permit.
    pub(super) belt: bool,
}

/// What a worker has read.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownRules {
    pub(super) paused: BTreeSet<usize>,
    pub(super) limited: bool,
}

impl KnownRules {
    /// Whether the worker may claim from this lane, with or without permits.
    pub(super) fn may(&self, lane: usize, under_limit: bool) -> bool {
        !self.paused.iter().any(|scope| covers(*scope, lane)) && (self.limited && lane == LIMITED) == under_limit
    }
}

/// Whether a scope covers a lane.
pub(super) fn covers(scope: usize, lane: usize) -> bool {
    SCOPES[scope].0 == "*" || SCOPES[scope].0 == LANES[lane].0
}
