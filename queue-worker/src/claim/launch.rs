//! How a claim is sent and how it lands: what is asked for, which slots are reserved for it, and whose its jobs are.

use std::{collections::HashSet, sync::Arc, time::Instant};

use uuid::Uuid;

use super::{
    context::ClaimContext,
    feed::Feed,
    flight::{ClaimResult, Course, Flight, Onward, Reserved},
    late::{fills_a_lane, late_share},
    waiter::{FIRST, Kind, SlotWaiter},
};
use crate::{
    lanes::{From, Lane, Request, Share},
    run::{Promised, Queues},
};

/// A claim to be sent, the slots that are reserved for it, and its course.
type Prepared = (Request, Reserved, Course);

/// Which lanes to claim from, all of one kind, and the slots that are reserved for their jobs.
struct Chosen {
    shares: Vec<Share>,
    reserved: Reserved,
    /// They stand in lines.
    of_lines: bool,
    /// The first lane that is left, which is of the other kind.
    next: Option<i64>,
}

/// Slots for the first of these lanes that there are any for, and for those that follow and are of the same kind.
fn reserve_first(waiter: &mut SlotWaiter, context: &ClaimContext, lanes: &[(i32, &Lane)]) -> Chosen {
    let (mut reserved, mut left) = (Reserved::new(), lanes);
    loop {
        let of_lines = left.first().is_some_and(|(_, lane)| lane.fair);
        let (these, others) = left.split_at(left.iter().take_while(|(_, lane)| lane.fair == of_lines).count());
        let kind = Kind { takes_batches: false, in_turn: of_lines };
        // A queue that has no slots for better ones has none for these, though one may be free by now.
        let these: Vec<(i32, &Lane)> = these.iter().filter(|(_, lane)| !reserved.contains_key(&lane.queue)).copied().collect();
        let (shares, slots) = waiter.reserve_for(&context.queues, &these, |_| context.batch, kind);
        reserved.extend(slots);
        if !shares.is_empty() || others.is_empty() {
            return Chosen { shares, reserved, of_lines, next: others.first().map(|(_, lane)| lane.id) };
        }
        left = others;
    }
}

/// For a look below the floors beside other claims: it reserves no slots.
fn beside_claims(queues: &Queues, lanes: &[(i32, &Lane)]) -> Chosen {
    let mut chosen = Chosen { shares: Vec::new(), reserved: Reserved::new(), of_lines: false, next: None };
    for (_, lane) in lanes {
        let Some(slots) = queues.slots(&lane.queue) else { continue };
        let most = late_share(&slots);
        chosen.reserved.entry(Arc::clone(&lane.queue)).or_insert_with(|| Promised::none(slots));
        if most > 0 {
            chosen.shares.push(Share { lane: lane.id, most });
        }
    }
    chosen
}

impl Feed {
    /// Claims single jobs for every queue with free slots. While there is more than one claim can take, another is in the air beside it.
    pub(super) async fn claim_singles(&mut self, worker: Uuid) -> sqlx::Result<ClaimResult> {
        if self.looks_aside() && self.rescan.is_due() {
            self.look_for_late_ones(worker).await?;
        }
        let flight = match self.flight.take() {
            Some(flight) => flight,
            None => match self.launch(worker, None).await? {
                Ok(flight) => flight,
                Err(found) => return Ok(found),
            },
        };
        // Whose turn it is after a claim from lines is known only when that has landed.
        let of_lines = flight.course.of_lines;
        if self.found == ClaimResult::Full && !self.context.queues.keep_order() && !of_lines {
            match self.launch(worker, None).await {
                Ok(next) => self.flight = next.ok(),
                Err(error) => {
                    self.flight = Some(flight);
                    return Err(error);
                }
            }
        }
        let found = self.claim_on(worker, flight).await?;
        if found == ClaimResult::Full && !self.context.queues.keep_order() && of_lines {
            self.flight = self.launch(worker, None).await?.ok();
        }
        if self.looks_aside() {
            self.rescan.hurry();
        }
        if self.flight.is_some() || self.lanes.more_wait() {
            return Ok(ClaimResult::Full);
        }
        // Below the floors lies what was committed late. Seldom anything does, and the jobs found above are under way by now.
        if let ClaimResult::Jobs(count) = found
            && self.rescan.owes()
            && self.rescan.may(Instant::now())
        {
            if self.looks_aside() {
                self.look_for_late_ones(worker).await?;
            } else if let Some(flight) = self.launch_late(worker).await? {
                return Ok(match self.land(flight).await? {
                    ClaimResult::Jobs(late) => ClaimResult::Jobs(count + late),
                    more => more,
                });
            }
        }
        Ok(found)
    }

    /// Lands a claim; while it comes short, claims from the lanes that it did not come to, until none are left.
    async fn claim_on(&mut self, worker: Uuid, flight: Flight) -> sqlx::Result<ClaimResult> {
        let mut course = flight.course;
        let mut found = self.land(flight).await?;
        while let (ClaimResult::Jobs(count), Some(next), true) = (found, course.next, self.flight.is_none()) {
            match self.launch(worker, Some(next)).await? {
                Ok(flight) => {
                    course = flight.course;
                    found = match self.land(flight).await? {
                        ClaimResult::Jobs(more) => ClaimResult::Jobs(count + more),
                        other => other,
                    };
                }
                Err(ClaimResult::Jobs(_)) => break,
                Err(other) => return Ok(other),
            }
        }
        Ok(found)
    }

    /// Sends a claim on its way, for what another has left if that is said; or says why there is none to send.
    async fn launch(&mut self, worker: Uuid, begin: Option<Onward>) -> sqlx::Result<Result<Flight, ClaimResult>> {
        Ok(self.prepare(worker, begin, false).await?.map(|(request, reserved, course)| self.send(request, reserved, course, false)))
    }

    /// Sends one that looks below the floors, if there is any lane that has one.
    async fn launch_late(&mut self, worker: Uuid) -> sqlx::Result<Option<Flight>> {
        let prepared = self.prepare(worker, None, true).await?;
        Ok(prepared.ok().map(|(request, reserved, course)| self.send(request, reserved, course, false)))
    }

    /// What to claim now, and the slots that are reserved for it: from the first lanes with free slots, all of one kind. From zero, only from lanes that
    /// have floors.
    pub(super) async fn prepare(
        &mut self,
        worker: Uuid,
        begin: Option<Onward>,
        from_zero: bool,
    ) -> sqlx::Result<Result<Prepared, ClaimResult>> {
        if self.lanes.must_look() {
            let link = self.links.any();
            let looked = self.lanes.look(link.get().await?, self.context.store).await;
            link.note(looked)?;
            self.keep_singles();
        }
        let (turn, offered) = self.offered(begin);
        let (aged, context, aside) = (self.aged(&offered), Arc::clone(&self.context), from_zero && self.looks_aside());
        let is_single = |lane: &&Lane| !(from_zero && lane.fair) && context.queues.batch_of(lane.job_type).is_none();
        let singles: Vec<&Lane> = offered.iter().filter_map(|id| self.lanes.track.get(*id)).filter(is_single).collect();
        let may_hold = |lane: &&&Lane| from_zero || aged.contains(&lane.id) || self.singles.may_hold(lane);
        let priority = |lane: &Lane| if aged.contains(&lane.id) { FIRST } else { lane.priority.into() };
        let lanes: Vec<(i32, &Lane)> = singles.iter().filter(may_hold).map(|lane| (priority(lane), *lane)).collect();
        let any_waits = lanes.len() < singles.len();
        let Chosen { mut shares, reserved, of_lines, next } =
            if aside { beside_claims(&context.queues, &lanes) } else { reserve_first(&mut self.singles, &context, &lanes) };
        if let Some(next) = next {
            // Of many lanes what is left is offered again.
            let left = offered.iter().skip_while(|id| **id != next).copied();
            self.lanes.take_back(left.collect::<Vec<_>>().into_iter());
        }
        if begin.is_none() && !from_zero {
            self.singles.keep(|queue| reserved.contains_key(queue));
        }
        context.fit(&self.lanes.track, &mut shares);
        if shares.is_empty() {
            self.owe_later(any_waits, reserved.is_empty(), from_zero);
            if reserved.values().any(|promised| promised.count > 0) {
                // What it has slots for is too large for now.
                self.singles.leave_all();
            }
            let saturated = if reserved.is_empty() { ClaimResult::Jobs(0) } else { ClaimResult::Saturated };
            return Ok(Err(if self.lanes.more_wait() { ClaimResult::Full } else { saturated }));
        }
        // Not by looks below the floors, nor by passes that find no slot: two steps at a time, and of two lanes the same one would always be first.
        if begin.is_none() && !from_zero {
            self.turn = self.turn.wrapping_add(1);
        }
        context.let_age(&mut self.lanes.track, &mut shares);
        let asked = shares.iter().fold(0_usize, |sum, share| sum.saturating_add(share.most));
        let slots: usize = reserved.values().map(|promised| promised.count).sum();
        let most = if aside { asked } else { slots.min(asked) }.min(context.batch);
        let from = self.source(of_lines, from_zero);
        if from == (From::Lanes { from_zero: true }) {
            self.rescan.begin();
        }
        let next = next.map(|lane| Onward { turn, lane });
        let course = Course { next, of_lines: from == From::Lines, of_batches: false };
        Ok(Ok((Request::new(worker, shares, most, from, &mut self.lanes.track, &context.held), reserved, course)))
    }

    /// Which of these lanes better ones have kept waiting too long.
    pub(super) fn aged(&mut self, lanes: &[i64]) -> HashSet<i64> {
        let Some(aging) = self.context.aging else { return HashSet::new() };
        lanes.iter().copied().filter(|lane| self.lanes.track.is_passed_over(*lane, aging)).collect()
    }

    /// Where to claim from: from zero if that is asked for, or due and quick.
    fn source(&self, of_lines: bool, from_zero: bool) -> From {
        if of_lines {
            return From::Lines;
        }
        From::Lanes { from_zero: from_zero || self.lanes.are_many() || (!self.looks_aside() && self.rescan.is_due()) }
    }

    /// The lanes to claim from, best first, in the order of this turn, or of that in which a claim has left some. Those that better ones have kept
    /// waiting too long go before all.
    fn offered(&mut self, begin: Option<Onward>) -> (usize, Vec<i64>) {
        let turn = begin.map_or(self.turn, |begin| begin.turn);
        let mut offered: Vec<i64> = self.lanes.offer(turn, self.found == ClaimResult::Full).into_iter().map(|lane| lane.id).collect();
        if let Some(aging) = self.context.aging {
            offered.sort_by_cached_key(|lane| !self.lanes.track.is_passed_over(*lane, aging));
        }
        // Of many lanes what was left is offered again, and nothing else.
        let left = begin.filter(|_| !self.lanes.are_many());
        if let Some(first) = left.and_then(|left| offered.iter().position(|lane| *lane == left.lane)) {
            offered.drain(..first);
        }
        (turn, offered)
    }

    pub(super) fn send(&mut self, request: Request, reserved: Reserved, course: Course, aside: bool) -> Flight {
        let (mut link, context) = (self.links.take(), Arc::clone(&self.context));
        let air = context.weigh(&self.lanes.track, &request);
        if aside {
            link.call("late");
        }
        let paused = context.queues.pauses().now();
        let landing = tokio::spawn(async move {
            let answer = request.send(&mut link, context.store).await;
            if aside {
                context.bell.nudge();
            }
            (link, answer)
        });
        Flight { reserved, paused, course, landing, air }
    }

    /// Waits for a claim, and gives its jobs to their queues' slots, or back if they were paused since. Drops them if our identity is gone meanwhile:
    /// they will be recovered.
    pub(super) async fn land(&mut self, flight: Flight) -> sqlx::Result<ClaimResult> {
        let Flight { reserved, paused: _kept, course, landing, air: _brought } = flight;
        let (mut link, answer) = landing.await.map_err(|_| sqlx::Error::WorkerCrashed)?;
        // Whatever it is used for next does not wait for those that take long.
        link.call("claim");
        self.links.idle.push(link);
        let (worker, most, from, took) = (answer.request.worker, answer.request.most, answer.request.from, answer.took);
        self.context.bell.vitals().note_claim(took);
        let shares = answer.request.shares.clone();
        let lanes: Vec<i64> = shares.iter().map(|share| share.lane).collect();
        let is_late = matches!(from, From::Lanes { from_zero: true } | From::Late(_));
        let mut brought = answer.read(&mut self.lanes.track).inspect_err(|_| self.rescan.owed |= is_late)?;
        self.lanes.take_back(std::mem::take(&mut brought.left).into_iter());
        let (claimed, count) = (&brought.jobs, brought.jobs.len() + brought.unread.len());
        // A part of a look says nothing of the lanes that it found nothing of.
        let context = Arc::clone(&self.context);
        let served = claimed.iter().map(|job| job.job.lane);
        context.note_served(&mut self.lanes.track, &lanes, count < most && brought.swept.is_none(), served.clone());
        if brought.swept.is_none() {
            let waiter = if course.of_batches { &mut self.batches } else { &mut self.singles };
            waiter.note(&self.lanes.track, &reserved, &lanes, &served, count >= most);
        }
        match (from, brought.swept) {
            (_, Some(part)) => self.rescan.did(took, part, count >= most || fills_a_lane(claimed, &shares)),
            (From::Lanes { from_zero: true }, None) => self.rescan.done(took, count),
            (From::Lanes { from_zero: false }, None) if count < most => self.rescan.owed = true,
            _ => {}
        }
        // Others may have raised the floor by the time they are back.
        self.rescan.owed |= !brought.unread.is_empty();
        let filled = context.hand_over(worker, &reserved, brought).await;
        Ok(if filled || count >= most { ClaimResult::Full } else { ClaimResult::Jobs(count) })
    }
}
