//! Lets a claimer wait for free slots of several queues. Waiting claimers are served in priority order.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use super::in_flight::SlotReservations;
use crate::{
    lanes::{Lane, LaneQuota, LaneState},
    run::{ClaimerHandle, Queues, SlotRequest, SlotReservation, Slots},
};

/// Queues in which a claimer waits for slots, and lanes that are known to be empty.
pub(super) struct SlotWaiter {
    claimant: ClaimerHandle,
    slots_by_queue: HashMap<Arc<str>, Arc<Slots>>,
    /// Lanes that were empty at the last claim.
    empty: HashSet<i64>,
    /// Time at which `empty` was last cleared. Claims sent before this time add nothing to `empty`.
    emptied_at: Instant,
    /// Lanes in which a probe has found jobs. `None` unless the claimer's group has many lanes.
    offered: Option<HashSet<i64>>,
}

/// Properties shared by lanes that are claimed together.
#[derive(Clone, Copy, Default)]
pub(super) struct LaneKind {
    /// Whether the handlers of these lanes process batches.
    pub(super) takes_batches: bool,
    /// Whether the lanes use fair queueing. Only a few jobs of such lanes are prefetched.
    pub(super) in_turn: bool,
}

/// Priority of a lane that has not been served for at least the aging limit.
pub(super) const PROMOTED_PRIORITY: i32 = i32::MAX;

impl SlotWaiter {
    /// Creates a claimer's slot waiter. `notify` wakes the claimer.
    pub(super) fn new(notify: &Arc<Notify>) -> Self {
        Self {
            claimant: ClaimerHandle::new(notify),
            slots_by_queue: HashMap::new(),
            empty: HashSet::new(),
            emptied_at: Instant::now(),
            offered: None,
        }
    }

    pub(super) fn forget_empty(&mut self) {
        self.empty.clear();
        self.emptied_at = Instant::now();
    }

    /// Returns whether at least `time` has passed since the set of empty lanes was last cleared.
    pub(super) fn is_older_than(&self, time: Duration) -> bool {
        self.emptied_at.elapsed() >= time
    }

    /// Returns whether `lane` may hold jobs.
    pub(super) fn may_hold(&self, lane: &Lane) -> bool {
        self.offered.as_ref().map_or_else(|| !self.empty.contains(&lane.id), |offered| offered.contains(&lane.id))
    }

    /// If `are_many` is true, restricts claims to lanes that the poller has offered. The lanes in `few` are offered initially. If
    /// `are_many` is false, lifts the restriction.
    pub(super) fn restrict_to_offered(&mut self, are_many: bool, few: impl Iterator<Item = i64>) {
        self.offered = if are_many { Some(self.offered.take().unwrap_or_else(|| few.collect())) } else { None };
    }

    /// Adds `lanes` to the offered lanes, if claims are restricted to offered lanes.
    pub(super) fn offer(&mut self, lanes: Vec<i64>) {
        if let Some(offered) = &mut self.offered {
            offered.extend(lanes);
        }
    }

    /// Returns whether the claimer is waiting for slots of any queue.
    pub(super) fn is_waiting(&self) -> bool {
        !self.slots_by_queue.is_empty()
    }

    /// Reserves slots of a queue. From then on, the claimer waits for further slots of the queue.
    fn reserve(&mut self, queue: &Arc<str>, slots: &Arc<Slots>, demand: SlotRequest<'_>) -> SlotReservation {
        if !self.slots_by_queue.contains_key(queue) {
            self.slots_by_queue.insert(Arc::clone(queue), Arc::clone(slots));
        }
        slots.reserve(&self.claimant, demand)
    }

    /// Reserves slots for `lanes`, which must be ordered by priority. Reserves slots for at most `most` jobs per queue. In a claim for
    /// batch handlers, the limit applies to each job type of a queue. Skips lanes whose priority is lower than the priority of another
    /// waiting claimer.
    pub(super) fn reserve_for(
        &mut self,
        queues: &Queues,
        lanes: &[(i32, &Lane)],
        most: impl Fn(&Slots) -> usize,
        LaneKind { takes_batches, in_turn }: LaneKind,
    ) -> (Vec<LaneQuota>, SlotReservations) {
        let batch_of = |lane: &Lane| queues.batch_of(lane.job_type).filter(|_| takes_batches);
        let mut batches: HashMap<&Arc<str>, Vec<(&'static str, usize)>> = HashMap::new();
        for (_, lane) in lanes.iter().filter(|_| takes_batches) {
            let known = batches.entry(&lane.queue).or_default();
            known.extend(batch_of(lane).filter(|of| !known.contains(of)));
        }
        let (mut reserved, mut shares) = (SlotReservations::new(), Vec::new());
        for (priority, lane) in lanes {
            let promised = match reserved.entry(Arc::clone(&lane.queue)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(fresh) => {
                    let Some(slots) = queues.slots(&lane.queue) else { continue };
                    let batches = batches.get(&lane.queue).map_or(&[][..], Vec::as_slice);
                    // The first lane of a queue has the highest priority.
                    let demand = SlotRequest { priority: *priority, most: most(&slots), in_turn, batches };
                    fresh.insert(self.reserve(&lane.queue, &slots, demand))
                }
            };
            let count = batch_of(lane).map_or(promised.count, |(job_type, _)| promised.count_of(job_type));
            if promised.above.is_some_and(|above| *priority < above) {
                promised.withholds = true;
            } else if count > 0 {
                shares.push(LaneQuota { lane: lane.id, most: count });
            }
        }
        (shares, reserved)
    }

    /// Records the result of a claim, and marks lanes without jobs as empty. Stops waiting for slots of each queue in which the claim found
    /// fewer jobs than it could have returned, unless the claim omitted lanes of the queue.
    pub(super) fn record_claim(
        &mut self,
        track: &LaneState,
        (reserved, sent): (&SlotReservations, Instant),
        requested: &[i64],
        served: &(impl Iterator<Item = i64> + Clone),
        is_full: bool,
    ) {
        for (queue, promised) in reserved.iter().filter(|(_, promised)| promised.count > 0) {
            let is_of_queue = |lane: &i64| track.get(*lane).is_some_and(|lane| lane.queue == *queue);
            let is_full = is_full || served.clone().filter(is_of_queue).count() >= promised.count;
            if self.emptied_at <= sent && (!is_full || promised.above.is_some() || self.offered.is_some()) {
                // A full claim may not have exhausted the last lane that returned jobs, and may not have reached later lanes. Therefore
                // only the lanes before the last lane that returned jobs are marked as empty.
                let (requested, served): (Vec<i64>, HashSet<i64>) =
                    (requested.iter().copied().filter(is_of_queue).collect(), served.clone().collect());
                let last = requested.iter().rposition(|lane| served.contains(lane)).unwrap_or(0);
                let empty = requested[..if is_full { last } else { requested.len() }].iter().copied().collect::<HashSet<i64>>();
                match &mut self.offered {
                    Some(offered) => offered.retain(|lane| !empty.contains(lane)),
                    None => self.empty.extend(empty),
                }
            }
            if !is_full && !promised.withholds {
                self.leave(queue);
            }
        }
    }

    /// Stops waiting in all queues except those for which `is_kept` returns `true`.
    pub(super) fn retain_queues(&mut self, is_kept: impl Fn(&Arc<str>) -> bool) {
        let others: Vec<Arc<str>> = self.slots_by_queue.keys().filter(|queue| !is_kept(queue)).cloned().collect();
        for queue in &others {
            self.leave(queue);
        }
    }

    fn leave(&mut self, queue: &Arc<str>) {
        if let Some(slots) = self.slots_by_queue.remove(queue) {
            slots.leave(&self.claimant);
        }
    }

    /// Stops waiting for slots in all queues.
    pub(super) fn leave_all(&mut self) {
        for (_, slots) in self.slots_by_queue.drain() {
            slots.leave(&self.claimant);
        }
    }
}

impl Drop for SlotWaiter {
    fn drop(&mut self) {
        self.leave_all();
    }
}
