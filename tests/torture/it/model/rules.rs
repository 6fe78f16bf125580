//! What is paused, and what a limit allows: what there is of these, and what a worker has read of it.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::op::{LANES, LIMITED, SCOPES};

/// What is paused, and how many of the limited lane run at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// By scope, the number of its pause.
    pub(super) paused: BTreeMap<usize, i64>,
    pub(super) limit: Option<Bound>,
    /// Up to which number each worker said that it goes by them.
    pub(super) seen: BTreeMap<Uuid, i64>,
    pub(super) newest: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) most: usize,
    pub(super) number: i64,
    /// Whether what ran before is counted; then all who lived knew of it.
    pub(super) adopted: bool,
    /// How many jobs of each lease it counts.
    pub(super) permits: BTreeMap<Uuid, usize>,
}

/// A claim under the limit.
pub(super) struct Asked<'a> {
    pub(super) most: usize,
    /// Which leases it says have ended jobs.
    pub(super) freed: &'a [Uuid],
    /// Whether all leases are read anew if there is no room.
    pub(super) belt: bool,
}

/// What a worker has read.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) paused: BTreeSet<usize>,
    pub(super) limited: bool,
}

impl Known {
    /// Whether it may claim of this lane, freely or under the limit.
    pub(super) fn may(&self, lane: usize, under_limit: bool) -> bool {
        !self.paused.iter().any(|scope| covers(*scope, lane)) && (self.limited && lane == LIMITED) == under_limit
    }
}

/// Whether a scope covers a lane.
pub(super) fn covers(scope: usize, lane: usize) -> bool {
    SCOPES[scope].0 == "*" || SCOPES[scope].0 == LANES[lane].0
}
