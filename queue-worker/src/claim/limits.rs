//! Claims under limits: beside the claims of other lanes, on links of their own, so that a limit whose gate somebody holds stops nothing else.
//!
//! All lanes that the same limits cover are claimed together. Where no permit is left their gate is shut: nobody asks those lanes until jobs of
//! this worker end, somebody says that there is room, a time has come, or a second has passed.

use std::{collections::hash_map::Entry, sync::Arc, time::Instant};

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{
    feed::Feed,
    flight::{ClaimResult, Course, Flight, Reserved},
    gates::{Next, Step},
    landing::ahead,
    turns::Withheld,
};
use crate::{
    error::complain,
    lanes::{Asked, Brought, From, Group, Lane, Request, Room, Said, Share},
    live::{Sleep, Under},
};

impl Feed {
    /// Sends claims under limits on their way: those whose time has come, and with a look for jobs those of lanes that may hold some.
    pub(super) fn claim_limited(&mut self, worker: Uuid, step: Step) {
        let (now, looks, hurry) = (Instant::now(), step != Step::First, self.sleep != Sleep::Awake);
        self.limits.saturated = false;
        self.limits.free.above.clear();
        if self.lanes.groups.are_none() {
            return;
        }
        let mut groups = self.in_turn(step);
        groups.sort_by_cached_key(|(group, _)| (std::cmp::Reverse(group.best), self.limits.state(&group.under.gates).sent));
        for (group, withheld) in &groups {
            let (is_full, waits_since) = (self.limits.are_full(), self.limits.waits_since());
            let any_unasked = self.limits.free.any_unasked(&group.queues);
            let state = self.limits.state(&group.under.gates);
            let says = state.says(now);
            state.waits = state.is_due(now, looks, hurry);
            let goes = state.waits && !state.yields(now, any_unasked, waits_since) && withheld.leaves_any;
            let is_passed = is_full && goes;
            if !is_passed {
                state.passed_at = None;
            }
            self.limits.saturated |= looks && state.waits && (is_passed || !goes);
            if is_passed {
                self.limits.note_passed(&group.under.gates);
            }
            if !is_full && (goes || says) {
                self.launch_limited(worker, group, goes.then_some(withheld), says);
            }
        }
        if step == Step::Before {
            self.hold_back(&groups);
        }
    }

    /// Whether there are limits, and the lanes without any had as many jobs as there was room for when they were claimed last, or found none that is
    /// left now.
    pub(super) fn are_busy(&self) -> bool {
        !self.lanes.groups.are_none() && (!matches!(self.found, ClaimResult::Jobs(_)) || self.limits.owe_chance())
    }

    /// How many jobs to claim of each lane of a group, and the slots that are reserved for them: of the kind that goes first, batches or single jobs.
    /// If there is no room for any, of the other one. Under a rate all are single ones.
    fn demand_limited(&mut self, group: &Group, withheld: &Withheld) -> (Vec<Share>, Reserved) {
        let under = &group.under;
        let state = self.limits.state(&under.gates);
        let (turn, others) = (state.turn, state.others);
        let mut offered = self.lanes.of_group(group, turn);
        offered.retain(|lane| !withheld.stops(lane));
        let are_batches = |lane: &Lane| !under.timed && self.queues.batch_of(lane.job_type).is_some();
        let first = offered.first().is_some_and(|lane| are_batches(lane)) != others;
        let (batches, singles): (Vec<&Lane>, Vec<&Lane>) = offered.into_iter().partition(|lane| are_batches(lane));
        let has_both = !batches.is_empty() && !singles.is_empty();
        self.limits.state(&under.gates).has_both = has_both;
        let demand = |of_batches: bool| {
            if of_batches {
                self.demand_batches(batches.clone(), self.batch.min(under.most.max(1)))
            } else {
                self.demand_singles(&singles, under)
            }
        };
        let (shares, reserved) = demand(first);
        if shares.is_empty() && has_both { demand(!first) } else { (shares, reserved) }
    }

    fn demand_singles(&self, lanes: &[&Lane], under: &Under) -> (Vec<Share>, Reserved) {
        // In each queue: it is not known where the jobs are.
        let (mut reserved, mut shares, most) = (Reserved::new(), Vec::new(), under.most.max(1));
        for lane in lanes {
            let promised = match reserved.entry(lane.queue.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(fresh) => match self.queues.slots(&lane.queue) {
                    Some(slots) => {
                        let cap = if under.timed { most.min(slots.concurrency()) } else { most };
                        fresh.insert(slots.demand_apart(self.batch, cap))
                    }
                    None => continue,
                },
            };
            if promised.count > 0 {
                shares.push(Share { lane: lane.id, most: promised.count });
            }
        }
        (shares, reserved)
    }

    /// Without any lanes that may be claimed, only to say what has ended here.
    fn launch_limited(&mut self, worker: Uuid, group: &Arc<Group>, goes: Option<&Withheld>, says: bool) {
        let under = &group.under;
        let (mut shares, reserved) = goes.map_or_else(Default::default, |withheld| self.demand_limited(group, withheld));
        let has_slots = !shares.is_empty();
        self.fit(&mut shares);
        if !has_slots && !reserved.is_empty() {
            let state = self.limits.state(&under.gates);
            if !state.in_air() {
                state.pass_over();
            }
            self.limits.saturated = true;
        }
        if shares.is_empty() && !says {
            return;
        }
        self.let_age(&mut shares);
        let asked = shares.iter().fold(0_usize, |sum, share| sum.saturating_add(share.most));
        let most = reserved.values().map(|promised| promised.count).sum::<usize>().min(asked).min(self.batch).min(under.most.max(1));
        let asks = !shares.is_empty();
        if asks {
            self.limits.note_sent(&under.gates, reserved.iter().filter(|(_, promised)| promised.count > 0).map(|(queue, _)| queue));
        }
        let state = self.limits.state(&under.gates);
        let is_part = goes.is_some_and(|withheld| withheld.stops_any);
        let from_zero = asks && (state.rescan.is_due() || (state.rescan.owed && state.rescan.may(Instant::now())));
        if from_zero {
            state.rescan.begin();
        }
        if state.since.take().is_some() {
            state.said = Some(Instant::now());
        }
        state.waits = false;
        let (freed, slack, floors) = (state.freed.drain().collect(), state.slack, state.floors.clone());
        let told = self.limits.freed.clone();
        let asked = Asked { gates: Arc::clone(&under.gates), keyed: under.keyed, freed, told, slack, floors };
        let request = Request::new(worker, shares, most, From::Limited { from_zero }, &mut self.lanes, &self.held).under(asked);
        let (mut link, store, bell, air) = (self.permits.take(), self.store, Arc::clone(&self.bell), self.reserve(&request));
        let (say, said) = oneshot::channel();
        let landing = tokio::spawn(async move {
            let heard = Arc::clone(&bell);
            let say = move |taken: Said| {
                // One that took nothing is over at once.
                let takes = taken.count > 0;
                // Fails only if nobody waits for the claim any more.
                let _ = say.send(taken);
                if takes {
                    heard.nudge();
                }
            };
            let answer = request.send_and_say(&mut link, store, say).await;
            bell.nudge();
            (link, answer)
        });
        let (paused, said) = (self.queues.pauses().now(), Some(said));
        let (course, sent) = (Course::default(), Instant::now());
        let flight = Flight { reserved, paused, course, is_part, sent, landing, said, air };
        let ahead = ahead(self.queues.keep_order(), self.lanes.groups.len());
        let state = self.limits.state(&under.gates);
        (state.told, state.ahead, state.flight) = (false, ahead, Some(flight));
    }

    /// Of suspects that limits cover: waits for the claim, for nothing else is begun meanwhile.
    pub(super) async fn claim_suspects(&mut self, request: Request, lane: i64) -> sqlx::Result<Brought> {
        let Some(group) = self.lanes.groups.of(lane).cloned() else {
            return request.send(self.links.any(), self.store).await.read(&mut self.lanes);
        };
        let gates = Arc::clone(&group.under.gates);
        let state = self.limits.state(&gates);
        state.since = None;
        let (freed, slack, keyed) = (state.freed.drain().collect(), state.slack, group.under.keyed);
        let told = self.limits.freed.clone();
        let request = request.under(Asked { gates: Arc::clone(&gates), keyed, freed, told, slack, floors: None });
        let mut link = self.permits.take();
        let answer = request.send(&mut link, self.store).await;
        self.permits.push(link);
        let (most, asked) = (answer.request.most, answer.request.freed().to_vec());
        let brought = match answer.read(&mut self.lanes) {
            Ok(brought) => brought,
            Err(error) => {
                complain(&error, "a claim under limits failed; what they cover waits for a second, and nothing else does");
                self.limits.state(&gates).fail(asked, false);
                self.lanes.groups.shut(&gates, true);
                return Ok(Brought::default());
            }
        };
        let state = self.limits.state(&gates);
        let before = state.next;
        state.note(brought.room, brought.jobs.len() + brought.unread.len(), most);
        // Keys of suspects say nothing of others that wait.
        if matches!(brought.room, Room::Keys(_)) && !matches!(before, Next::Shut(_)) {
            state.next = before;
        }
        self.note_room(&gates, brought.room, asked);
        Ok(brought)
    }

    /// Says where handlers were told to slow down: beside everything else, for whoever has a limit locked is waited for.
    pub(super) async fn slow_down(&mut self) {
        self.limits.slow.hear(&self.bell);
        self.limits.slow.land(&mut self.permits).await;
        let Some(paused) = self.queues.pauses().now() else { return };
        for (lane, until) in self.limits.slow.all() {
            let Some(lane) = self.lanes.get(lane) else { continue };
            self.limits.hold(&paused.slowed(&lane.queue, lane.job_type), until);
        }
        while let Some((lane, until)) = self.limits.slow.next() {
            let Some(gates) = self.lanes.get(lane).map(|lane| paused.slowed(&lane.queue, lane.job_type)) else { continue };
            if !gates.is_empty() {
                self.limits.slow.send((lane, until), gates, self.permits.take(), self.store, &self.bell);
            }
        }
    }
}
