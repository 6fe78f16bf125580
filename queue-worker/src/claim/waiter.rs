//! How a claimer waits for slots: in each queue behind those who have better jobs. Does not touch the database.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use super::flight::Reserved;
use crate::{
    lanes::{Lane, Share, Track},
    run::{Claimant, Demand, Promised, Queues, Slots},
};

/// A claimer's places in the lines of the queues that it claims for, and what its last claims showed of its lanes.
pub(super) struct SlotWaiter {
    who: Claimant,
    stands: HashMap<Arc<str>, Arc<Slots>>,
    /// Lanes that had no more jobs.
    empty: HashSet<i64>,
    /// Since when these are noted: no claim that was sent before says that a lane is empty.
    looked: Instant,
    /// Of many lanes, those that were found to hold jobs.
    offered: Option<HashSet<i64>>,
}

/// Of lanes that are claimed from together.
#[derive(Clone, Copy, Default)]
pub(super) struct Kind {
    /// Their handlers take batches.
    pub(super) takes_batches: bool,
    /// Their jobs stand in lines, and few are claimed in advance.
    pub(super) in_turn: bool,
}

/// The priority of a lane that better ones have kept waiting too long.
pub(super) const FIRST: i32 = i32::MAX;

impl SlotWaiter {
    /// Of a claimer that this wakes.
    pub(super) fn new(notify: &Arc<Notify>) -> Self {
        Self { who: Claimant::new(notify), stands: HashMap::new(), empty: HashSet::new(), looked: Instant::now(), offered: None }
    }

    /// Any of its lanes may hold jobs.
    pub(super) fn look_anew(&mut self) {
        self.empty.clear();
        self.looked = Instant::now();
    }

    /// Whether what it knows is older than this: others may have come since.
    pub(super) fn has_waited(&self, time: Duration) -> bool {
        self.looked.elapsed() >= time
    }

    /// Whether this lane may hold jobs, as far as is known.
    pub(super) fn may_hold(&self, lane: &Lane) -> bool {
        self.offered.as_ref().map_or_else(|| !self.empty.contains(&lane.id), |offered| offered.contains(&lane.id))
    }

    /// From now on only those lanes are claimed from that are offered, and those that were known when they were few.
    pub(super) fn only_offered(&mut self, are_many: bool, few: impl Iterator<Item = i64>) {
        self.offered = if are_many { Some(self.offered.take().unwrap_or_else(|| few.collect())) } else { None };
    }

    /// These lanes hold jobs.
    pub(super) fn offer(&mut self, lanes: Vec<i64>) {
        if let Some(offered) = &mut self.offered {
            offered.extend(lanes);
        }
    }

    /// Whether it waits for slots of any queue.
    pub(super) fn waits(&self) -> bool {
        !self.stands.is_empty()
    }

    /// Reserves slots of a queue, or waits for some.
    fn reserve(&mut self, queue: &Arc<str>, slots: &Arc<Slots>, demand: Demand<'_>) -> Promised {
        if !self.stands.contains_key(queue) {
            self.stands.insert(Arc::clone(queue), Arc::clone(slots));
        }
        slots.reserve(&self.who, demand)
    }

    /// Reserves slots for these lanes, which stand with their priorities, best first: in each of their queues as many as that says, or as many batches.
    /// Lanes that are not as good as what others wait for are left out.
    pub(super) fn reserve_for(
        &mut self,
        queues: &Queues,
        lanes: &[(i32, &Lane)],
        most: impl Fn(&Slots) -> usize,
        Kind { takes_batches, in_turn }: Kind,
    ) -> (Vec<Share>, Reserved) {
        let batch_of = |lane: &Lane| queues.batch_of(lane.job_type).filter(|_| takes_batches);
        let mut batches: HashMap<&Arc<str>, Vec<(&'static str, usize)>> = HashMap::new();
        for (_, lane) in lanes.iter().filter(|_| takes_batches) {
            let known = batches.entry(&lane.queue).or_default();
            known.extend(batch_of(lane).filter(|of| !known.contains(of)));
        }
        let (mut reserved, mut shares) = (Reserved::new(), Vec::new());
        for (priority, lane) in lanes {
            let promised = match reserved.entry(Arc::clone(&lane.queue)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(fresh) => {
                    let Some(slots) = queues.slots(&lane.queue) else { continue };
                    let batches = batches.get(&lane.queue).map_or(&[][..], Vec::as_slice);
                    // The first of a queue is its best.
                    let demand = Demand { priority: *priority, most: most(&slots), in_turn, batches };
                    fresh.insert(self.reserve(&lane.queue, &slots, demand))
                }
            };
            let count = batch_of(lane).map_or(promised.count, |(job_type, _)| promised.count_of(job_type));
            if promised.above.is_some_and(|above| *priority < above) {
                promised.withholds = true;
            } else if count > 0 {
                shares.push(Share { lane: lane.id, most: count });
            }
        }
        (shares, reserved)
    }

    /// A claim of these lanes has come back that was sent then, with jobs of some of them. A queue of which it brought less than was reserved has no more.
    pub(super) fn note(
        &mut self,
        track: &Track,
        (reserved, sent): (&Reserved, Instant),
        asked: &[i64],
        served: &(impl Iterator<Item = i64> + Clone),
        is_full: bool,
    ) {
        for (queue, promised) in reserved.iter().filter(|(_, promised)| promised.count > 0) {
            let is_of_queue = |lane: &i64| track.get(*lane).is_some_and(|lane| lane.queue == *queue);
            let is_full = is_full || served.clone().filter(is_of_queue).count() >= promised.count;
            if self.looked <= sent && (!is_full || promised.above.is_some() || self.offered.is_some()) {
                // Those before the last that brought some have no more.
                let (asked, served): (Vec<i64>, HashSet<i64>) =
                    (asked.iter().copied().filter(is_of_queue).collect(), served.clone().collect());
                let last = asked.iter().rposition(|lane| served.contains(lane)).unwrap_or(0);
                let empty = asked[..if is_full { last } else { asked.len() }].iter().copied().collect::<HashSet<i64>>();
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

    /// It wants slots of these queues only.
    pub(super) fn keep(&mut self, wanted: impl Fn(&Arc<str>) -> bool) {
        let others: Vec<Arc<str>> = self.stands.keys().filter(|queue| !wanted(queue)).cloned().collect();
        for queue in &others {
            self.leave(queue);
        }
    }

    /// It wants no slots of this queue.
    fn leave(&mut self, queue: &Arc<str>) {
        if let Some(slots) = self.stands.remove(queue) {
            slots.leave(&self.who);
        }
    }

    /// It wants none at all.
    pub(super) fn leave_all(&mut self) {
        for (_, slots) in self.stands.drain() {
            slots.leave(&self.who);
        }
    }
}

impl Drop for SlotWaiter {
    fn drop(&mut self) {
        self.leave_all();
    }
}
