//! What the last claims showed of lanes, for the turns between those without limits and those under some. Does not touch the database.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::lanes::Lane;

/// What is known of lanes without limits, and beside them.
#[derive(Default)]
pub(super) struct Free {
    /// These brought jobs when they were asked last, or others of their queue left nothing for them; those under limits are among them.
    pub(super) filled: HashSet<i64>,
    /// Queues in which they had as many jobs as there was room for, in the last claim.
    pub(super) busy: HashSet<Arc<str>>,
    /// Those of them in which there was no slot to ask with.
    pub(super) unasked: HashSet<Arc<str>>,
    /// Queues in which jobs under limits had the last turn: among equals, those without any are next.
    pub(super) had_turn: HashSet<Arc<str>>,
    /// In these queues those of a lower priority wait: jobs under limits are next that have room.
    pub(super) above: HashMap<String, i16>,
    /// Limits whose last claim brought all that it asked for, and which had room for more.
    pub(super) more: HashSet<Arc<[i64]>>,
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
        !self.unasked.is_empty() && queues.iter().any(|queue| self.unasked.contains(queue.as_str()))
    }

    /// Whether this one may hold jobs. One that was empty may do so again once jobs under limits had their turn; until then it had its own.
    pub(super) fn may_hold(&self, lane: &Lane) -> bool {
        self.filled.contains(&lane.id) || self.had_turn.contains(&lane.queue)
    }

    /// Whether this one lets jobs under limits go first.
    pub(super) fn waits(&self, lane: &Lane) -> bool {
        self.above.get(&*lane.queue).is_some_and(|above| lane.priority < *above)
    }

    /// Forgets lanes and limits that are gone.
    pub(super) fn retain(&mut self, is_known: impl Fn(i64) -> bool, are_known: impl Fn(&Arc<[i64]>) -> bool) {
        self.more.retain(are_known);
        self.filled.retain(|lane| is_known(*lane));
    }
}
