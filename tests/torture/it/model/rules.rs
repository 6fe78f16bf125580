//! State of the rules (pauses and a limit), and the rules that each worker has read.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::op::{LANES, LIMITED, SCOPES};

/// Active pauses, the limit, and the acknowledgements of the workers.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// Pause number of each paused scope.
    pub(super) paused: BTreeMap<usize, i64>,
    pub(super) limit: Option<Bound>,
    /// Highest rule number that each worker has acknowledged.
    pub(super) seen: BTreeMap<Uuid, i64>,
    pub(super) newest: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) most: usize,
    pub(super) number: i64,
    /// Whether the limit is in force because all live workers have acknowledged it. A limit in force also counts jobs that started before
    /// the limit was set.
    pub(super) adopted: bool,
    /// Number of permits that each lease holds. The number may exceed the number of jobs that the lease still has.
    pub(super) permits: BTreeMap<Uuid, usize>,
}

/// Claim under the limit, as requested by a worker.
pub(super) struct LimitedClaim<'a> {
    pub(super) most: usize,
    /// Leases that the claim reports as having finished jobs.
    pub(super) freed: &'a [Uuid],
    /// Whether to read the permits of all leases again if too few permits are free.
    pub(super) belt: bool,
}

/// Rules that a worker has read.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownRules {
    pub(super) paused: BTreeSet<usize>,
    pub(super) limited: bool,
}

impl KnownRules {
    /// Returns whether the worker may claim from the lane. `under_limit` distinguishes claims under the limit from other claims.
    pub(super) fn may(&self, lane: usize, under_limit: bool) -> bool {
        !self.paused.iter().any(|scope| covers(*scope, lane)) && (self.limited && lane == LIMITED) == under_limit
    }
}

/// Returns whether a scope covers a lane.
pub(super) fn covers(scope: usize, lane: usize) -> bool {
    SCOPES[scope].0 == "*" || SCOPES[scope].0 == LANES[lane].0
}
