//! Notes what claims showed of lanes. Costs nothing where there are no limits.

use std::{collections::HashSet, sync::Arc};

use super::{feed::Feed, flight::Reserved};
use crate::lanes::{Claimed, Room};

impl Feed {
    /// A claim is sent, but not in the queues in which nothing is reserved.
    pub(super) fn note_unasked(&mut self, reserved: &Reserved) {
        if self.lanes.groups.are_none() {
            return;
        }
        for (queue, _) in reserved.iter().filter(|(_, promised)| promised.count == 0) {
            self.limits.free.busy.insert(queue.clone());
            self.limits.free.unasked.insert(queue.clone());
        }
    }

    /// A claim of these lanes, in this order, has landed. One that is full did not come to those behind the last that brought jobs.
    pub(super) fn note_free(&mut self, reserved: &Reserved, lanes: &[i64], claimed: &[Claimed], is_full: bool) {
        if self.lanes.groups.are_none() {
            return;
        }
        self.note_filled(lanes, &claimed.iter().map(|job| job.job.lane).collect(), is_full);
        let queue_of = |lane: &i64| self.lanes.get(*lane).map(|lane| &*lane.queue);
        let free = &mut self.limits.free;
        for (queue, promised) in reserved {
            let count = claimed.iter().filter(|job| queue_of(&job.job.lane) == Some(&**queue)).count();
            if count > 0 && (is_full || count >= promised.count) {
                free.busy.insert(queue.clone());
            }
        }
        // Of many lanes those are asked that hold jobs: where none does, it was their turn, too.
        let are_many = self.lanes.are_many();
        free.had_turn.retain(|queue| reserved.get(queue).map_or(!are_many, |promised| promised.count == 0));
    }

    /// The same under limits. Where these left no room for more, nothing is known of lanes that brought none.
    pub(super) fn note_limited(&mut self, gates: &Arc<[i64]>, lanes: &[i64], (served, room): (&[i64], Room), is_full: bool) {
        if lanes.is_empty() {
            return;
        }
        if is_full && room == Room::Open {
            self.limits.free.more.insert(Arc::clone(gates));
        } else {
            self.limits.free.more.remove(gates);
        }
        let is_closed = matches!(room, Room::Full | Room::Later(_) | Room::Unknown | Room::Gone | Room::Locked);
        if is_closed && !is_full {
            self.limits.free.filled.extend(served);
        } else {
            self.note_filled(lanes, &served.iter().copied().collect(), is_full);
        }
    }

    fn note_filled(&mut self, lanes: &[i64], brought: &HashSet<i64>, is_full: bool) {
        let queue_of = |lane: &i64| self.lanes.get(*lane).map(|lane| &*lane.queue);
        let queues: HashSet<&str> = brought.iter().filter_map(queue_of).collect();
        let last = lanes.iter().rposition(|lane| brought.contains(lane)).filter(|_| is_full);
        for (nth, lane) in lanes.iter().enumerate() {
            // Where others of its queue left nothing for it, it goes before what they go before. Other queues' jobs keep nobody from its slots.
            let is_unreached = || last.is_some_and(|last| nth > last) && queue_of(lane).is_some_and(|queue| queues.contains(queue));
            if brought.contains(lane) || is_unreached() {
                self.limits.free.filled.insert(*lane);
            } else {
                self.limits.free.filled.remove(lane);
            }
        }
    }
}
