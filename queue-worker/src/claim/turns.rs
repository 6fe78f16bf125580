//! Who goes first, by priority: lanes under limits beside lanes without any, and beside those under other limits. Does not touch the database.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    feed::Feed,
    gates::{Next, State, Step},
};
use crate::lanes::{Group, Lane};

/// Which lanes of a group let others go first.
pub(super) struct Withheld {
    /// In each of these queues those of a lower priority.
    below: HashMap<String, i32>,
    /// But not these, which have waited too long for that.
    passed_over: HashSet<i64>,
    /// Whether there are any such lanes, and any others.
    pub(super) stops_any: bool,
    pub(super) leaves_any: bool,
}

impl Withheld {
    pub(super) fn stops(&self, lane: &Lane) -> bool {
        self.below.get(&*lane.queue).is_some_and(|below| i32::from(lane.priority) < *below) && !self.passed_over.contains(&lane.id)
    }
}

/// The highest priority in each queue.
type Waiting = HashMap<String, i16>;

/// The same of lanes without limits: of those that may hold jobs, and of those that are known to.
type BestFree = HashMap<String, (i16, Option<i16>)>;

impl Feed {
    /// All groups, and what each leaves to others: to lanes without limits of a higher priority, and to equals each in turn as long as they have
    /// jobs. Once these have taken all they had, nobody waits for them; slots that are full of them are theirs. And to better lanes under other
    /// limits, as far as these are known to hold jobs that there is room for.
    pub(super) fn in_turn(&mut self, step: Step) -> Vec<(Arc<Group>, Withheld)> {
        let (aged, free) = (self.aged_queues(), self.best_free());
        let groups: Vec<Arc<Group>> = self.lanes.groups.iter().cloned().collect();
        let waiting: Vec<Waiting> = groups.iter().map(|group| self.waiting(group)).collect();
        // Of each queue the best two, for nobody waits for itself.
        let mut ahead: HashMap<&str, [(i32, usize); 2]> = HashMap::new();
        for (place, (queue, best)) in waiting.iter().enumerate().flat_map(|(place, waiting)| waiting.iter().map(move |one| (place, one))) {
            let [first, second] = ahead.entry(queue).or_insert([(i32::MIN, usize::MAX); 2]);
            let one = (i32::from(*best), place);
            (*first, *second) = if one > *first { (one, *first) } else { (*first, one.max(*second)) };
        }
        let mut all = Vec::with_capacity(groups.len());
        for (place, group) in groups.iter().enumerate() {
            let mut below = self.left_to_free(group, step, (&free, &aged), &waiting[place]);
            for queue in &group.queues {
                let best = ahead.get(queue.as_str()).and_then(|best| best.iter().find(|(_, other)| *other != place));
                if let Some((best, _)) = best.filter(|(best, _)| *best > i32::MIN) {
                    let known = below.entry(queue.clone()).or_insert(*best);
                    *known = *best.max(known);
                }
            }
            all.push((Arc::clone(group), below));
        }
        all.into_iter().map(|(group, below)| (Arc::clone(&group), self.withhold(&group, below))).collect()
    }

    /// Where jobs of this group wait that there is room for, as far as is known.
    fn waiting(&self, group: &Group) -> Waiting {
        let mut waiting = Waiting::new();
        let waits = |state: &State| match (&state.flight, state.landing.front()) {
            (Some(flight), _) => flight.is_young() && self.limits.free.more.contains(&group.under.gates),
            (None, Some(flight)) => flight.is_young() && matches!(state.next, Next::Now),
            (None, None) => matches!(state.next, Next::Now),
        };
        if !self.limits.groups.get(&group.under.gates).is_some_and(waits) {
            return waiting;
        }
        // Who is next and not known to hold any was never asked, or found no slot.
        let knows = group.lanes.iter().any(|lane| self.limits.free.filled.contains(lane));
        let filled = group.lanes.iter().filter(|lane| !knows || self.limits.free.filled.contains(lane));
        let has_room = |lane: &&Lane| !self.lanes.sizes().has_no_room(lane.id, self.queues.hand());
        for lane in filled.filter_map(|lane| self.lanes.get(*lane)).filter(has_room) {
            let known = waiting.entry(lane.queue.to_string()).or_insert(lane.priority);
            *known = lane.priority.max(*known);
        }
        waiting
    }

    /// What is known of lanes without limits.
    fn best_free(&self) -> BestFree {
        let free = &self.limits.free;
        let filled = self.lanes.best_free(|lane| free.filled.contains(&lane.id));
        let both = |(queue, best): (&str, i16)| (queue.to_owned(), (best, filled.get(queue).copied()));
        self.lanes.best_free(|lane| free.may_hold(lane)).into_iter().map(both).collect()
    }

    /// In which queues lanes of this group let those without limits go first, below which priority. Where a better one is not known to hold jobs, all
    /// do, if that is all that keeps jobs from beginning: it is asked soon.
    fn left_to_free(
        &self,
        group: &Group,
        step: Step,
        (best, aged): (&BestFree, &HashSet<String>),
        waiting: &Waiting,
    ) -> HashMap<String, i32> {
        let below = |queue: &String| {
            let is_busy = self.limits.free.are_busy(queue);
            if !is_busy && step != Step::Before {
                return None;
            }
            if aged.contains(queue) {
                return Some(i32::MAX);
            }
            let (best, filled) = *best.get(queue)?;
            if waiting.get(queue).is_some_and(|waiting| *waiting < best && filled.is_none_or(|filled| filled <= *waiting)) {
                return Some(i32::MAX);
            }
            // Equals are among them in their turn.
            Some(i32::from(best) + i32::from(is_busy && self.limits.free.had_turn.contains(queue.as_str())))
        };
        group.queues.iter().filter_map(|queue| Some((queue.clone(), below(queue)?))).collect()
    }

    /// Lanes that have been kept waiting too long are claimed all the same.
    fn withhold(&mut self, group: &Group, below: HashMap<String, i32>) -> Withheld {
        let mut withheld = Withheld { below, passed_over: HashSet::new(), stops_any: false, leaves_any: false };
        if let Some(aging) = self.aging.filter(|_| !withheld.below.is_empty()) {
            withheld.passed_over = group.lanes.iter().copied().filter(|lane| self.lanes.is_passed_over(*lane, aging)).collect();
        }
        for lane in group.lanes.iter().filter_map(|lane| self.lanes.get(*lane)) {
            let stops = withheld.stops(lane);
            withheld.stops_any |= stops;
            withheld.leaves_any |= !stops;
        }
        withheld
    }

    /// Where jobs under limits wait that there is room for, lanes without any of a lower priority wait with them: while a claim is on its way that
    /// will hardly bring them all, and while better lanes go first, but then once for each turn of theirs. None waits that has waited too long.
    pub(super) fn hold_back(&mut self, groups: &[(Arc<Group>, Withheld)]) {
        let aged = self.aged_queues();
        let mut above = HashMap::new();
        for (group, withheld) in groups {
            let in_air = self.limits.groups.get(&group.under.gates).is_some_and(State::in_air);
            for (queue, best) in self.waiting(group) {
                let is_stopped = withheld.below.get(&queue).is_some_and(|below| i32::from(best) < *below);
                if (in_air || (is_stopped && self.limits.free.had_turn.contains(queue.as_str()))) && !aged.contains(&queue) {
                    let known = above.entry(queue).or_insert(best);
                    *known = best.max(*known);
                }
            }
        }
        self.limits.free.above = above;
    }

    /// The queues in which lanes without limits have been kept waiting too long.
    fn aged_queues(&mut self) -> HashSet<String> {
        let Some(aging) = self.aging else { return HashSet::new() };
        let free: Vec<(i64, String)> = self.lanes.free().map(|lane| (lane.id, lane.queue.to_string())).collect();
        free.into_iter().filter(|(lane, _)| self.lanes.is_passed_over(*lane, aging)).map(|(_, queue)| queue).collect()
    }
}
