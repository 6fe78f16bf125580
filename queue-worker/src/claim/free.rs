//! What the last claims showed of the lanes without limits, for the turns between these and lanes under limits. Does not touch the database.

use std::collections::HashSet;

use crate::lanes::Lane;

/// What is known of lanes without limits.
#[derive(Default)]
pub(super) struct Free {
    /// These brought jobs when they were asked last, or others of their queue left nothing for them.
    pub(super) filled: HashSet<i64>,
    /// Queues in which they had as many jobs as there was room for, in the last claim.
    pub(super) busy: HashSet<String>,
    /// Those of them in which there was no slot to ask with.
    pub(super) unasked: HashSet<String>,
    /// Queues in which jobs under limits had the last turn: among equals, those without any are next.
    pub(super) had_turn: HashSet<String>,
}

impl Free {
    /// A claim begins, which tells anew in which queues there is no room.
    pub(super) fn begin(&mut self) {
        self.busy.clear();
        self.unasked.clear();
    }

    /// Whether they had as many jobs in this queue as there was room for.
    pub(super) fn are_busy(&self, queue: &str) -> bool {
        self.busy.contains(queue)
    }

    /// Whether in some of these there was no slot to ask with.
    pub(super) fn any_unasked(&self, queues: &[String]) -> bool {
        !self.unasked.is_empty() && queues.iter().any(|queue| self.unasked.contains(queue))
    }

    /// Whether this one may hold jobs. One that was empty may do so again once jobs under limits had their turn; until then it had its own.
    pub(super) fn may_hold(&self, lane: &Lane) -> bool {
        self.filled.contains(&lane.id) || self.had_turn.contains(&lane.queue)
    }

    /// Forgets lanes that are gone.
    pub(super) fn retain(&mut self, is_known: impl Fn(i64) -> bool) {
        self.filled.retain(|lane| is_known(*lane));
    }
}
