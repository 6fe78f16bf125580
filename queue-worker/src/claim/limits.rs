//! Claims under limits: beside the claims of other lanes, on links of their own, so that a limit whose gate somebody holds stops nothing else.
//!
//! All lanes that the same limits cover are claimed together. Where no permit is left their gate is shut: nobody asks those lanes until jobs of
//! this worker end, somebody says that there is room, a time has come, or a second has passed.

use std::{
    collections::{HashSet, hash_map::Entry},
    sync::Arc,
    time::Instant,
};

use uuid::Uuid;

use super::{
    feed::Feed,
    flight::{ClaimResult, Course, Flight, Reserved},
    gates::{Next, SHUT, Step},
    turns::Withheld,
};
use crate::{
    error::complain,
    lanes::{Asked, Brought, From, Group, Lane, Request, Room, Share},
    live::{Sleep, Under},
};

impl Feed {
    /// Lands what has come back; returns whether it brought jobs.
    pub(super) async fn land_limited(&mut self) -> bool {
        self.limits.hear(&self.bell);
        self.slow_down().await;
        let over: Vec<Arc<[i64]>> = self
            .limits
            .groups
            .iter()
            .filter(|(_, state)| state.flight.as_ref().is_some_and(Flight::is_over))
            .map(|(gates, _)| Arc::clone(gates))
            .collect();
        let mut any = false;
        for gates in over {
            any |= self.land_group(&gates).await;
        }
        let known: HashSet<Arc<[i64]>> = self.lanes.groups.iter().map(|group| Arc::clone(&group.under.gates)).collect();
        self.limits.free.retain(|lane| self.lanes.get(lane).is_some(), |gates| known.contains(gates));
        self.limits.groups.retain(|gates, state| known.contains(gates) || state.flight.is_some());
        any
    }

    /// Lands all that is in the air.
    pub(super) async fn land_all_limited(&mut self) {
        for gates in self.limits.groups.keys().cloned().collect::<Vec<_>>() {
            self.land_group(&gates).await;
        }
        // Each is said once more; what fails is told.
        self.limits.slow.hurry();
        loop {
            self.slow_down().await;
            let Some(link) = self.limits.slow.end().await else { break };
            self.permits.push(link);
        }
    }

    /// A claim has said what stands in the way of more under these limits. It was to say what ended here.
    fn note_room(&mut self, gates: &Arc<[i64]>, room: Room, asked: Vec<Uuid>) {
        let state = self.limits.state(gates);
        if matches!(room, Room::Locked | Room::Unknown) {
            // Nothing was read: the next claim says it.
            state.freed.extend(asked);
        }
        self.lanes.groups.shut(gates, state.is_shut());
        self.lanes.groups.shut_by_key(gates, state.is_shut_by_key());
        match room {
            Room::Locked => tracing::warn!(
                limits = ?gates,
                "jobs wait for a limit whose row in `gate` somebody else has locked; see pg_locks, and end that session"
            ),
            Room::Gone => self.vigil.due = Instant::now(),
            _ => {}
        }
    }

    /// Lands one of them; returns whether it brought jobs. One that failed stops nothing else: its limits are tried again in a second.
    async fn land_group(&mut self, gates: &Arc<[i64]>) -> bool {
        self.land_claim(gates).await.unwrap_or_else(|error| {
            complain(&error, "a claim under limits failed; what they cover waits for a second, and nothing else does");
            self.lanes.groups.shut(gates, true);
            false
        })
    }

    async fn land_claim(&mut self, gates: &Arc<[i64]>) -> sqlx::Result<bool> {
        let Some(Flight { reserved, paused: _kept, is_part, landing, .. }) =
            self.limits.groups.get_mut(gates).and_then(|state| state.flight.take())
        else {
            return Ok(false);
        };
        // Until it is known what was taken.
        let before = std::mem::replace(&mut self.limits.state(gates).next, Next::Broken(Instant::now() + SHUT));
        let (link, answer) = landing.await.map_err(|_| sqlx::Error::WorkerCrashed)?;
        self.permits.push(link);
        let (worker, most, from, took) = (answer.request.worker, answer.request.most, answer.request.from, answer.took);
        let asked = answer.request.freed().to_vec();
        let lanes: Vec<i64> = answer.request.shares.iter().map(|share| share.lane).collect();
        let state = self.limits.state(gates);
        let from_zero = from == (From::Limited { from_zero: true });
        let brought = answer.read(&mut self.lanes).inspect_err(|_| state.fail(asked.iter().copied(), from_zero))?;
        let (count, room) = (brought.jobs.len() + brought.unread.len(), brought.room);
        self.note_served(&lanes, count < most && room == Room::Open, &brought.jobs);
        self.note_limited(gates, &lanes, &brought, count >= most);
        let state = self.limits.state(gates);
        if let Some(start) = brought.start {
            state.note_spent(start.spent);
        }
        if let Some(floors) = brought.floors.clone() {
            state.floors = Some(floors);
        }
        state.took = took;
        state.note(room, count, most);
        if most == 0 && matches!(room, Room::Open | Room::Keys(_)) && matches!(before, Next::Now) {
            // It only said what had ended.
            state.next = before;
        }
        // Both kinds are asked before it rests.
        let came_short = match room {
            Room::Open | Room::Keys(_) => count < most,
            Room::More => count == 0,
            _ => false,
        };
        state.others = state.has_both && came_short && !state.others;
        if state.others {
            state.next = Next::Now;
        }
        if from_zero {
            state.rescan.done(took, count);
            state.rescan.owed |= is_part;
        } else if count < most {
            state.rescan.owed = true;
        }
        self.note_room(gates, room, asked);
        self.hand_over(worker, &reserved, brought).await;
        if count > 0 {
            self.traffic.note(ClaimResult::Jobs(count));
        }
        Ok(count > 0)
    }

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
        if shares.is_empty() && !reserved.is_empty() {
            self.limits.state(&under.gates).pass_over();
            self.limits.saturated = true;
        }
        if shares.is_empty() && !says {
            return;
        }
        self.let_age(&mut shares);
        for share in &mut shares {
            share.most = share.most.min(self.lanes.fitting(share.lane));
        }
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
        (state.since, state.waits) = (None, false);
        let (freed, slack, floors) = (state.freed.drain().collect(), state.slack, state.floors.clone());
        let told = self.limits.freed.clone();
        let asked = Asked { gates: Arc::clone(&under.gates), keyed: under.keyed, freed, told, slack, floors };
        let request = Request::new(worker, shares, most, From::Limited { from_zero }, &mut self.lanes, &self.held).under(asked);
        let (mut link, store, bell) = (self.permits.take(), self.store, Arc::clone(&self.bell));
        let landing = tokio::spawn(async move {
            let answer = request.send(&mut link, store).await;
            bell.nudge();
            (link, answer)
        });
        let flight =
            Flight { reserved, paused: self.queues.pauses().now(), course: Course::default(), is_part, sent: Instant::now(), landing };
        let state = self.limits.state(&under.gates);
        (state.told, state.flight) = (false, Some(flight));
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
    async fn slow_down(&mut self) {
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
