//! How a claim is sent and how it lands: what is asked for, which slots are reserved for it, and whose its jobs are.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Instant,
};

use uuid::Uuid;

use super::{
    feed::Feed,
    flight::{ClaimResult, Course, Flight, Onward, Reserved},
    late::{fills_a_lane, late_share},
};
use crate::lanes::{Brought, Claimed, From, InHand, Lane, Request, Share};

/// A claim to be sent, the slots that are reserved for it, and its course.
type Prepared = (Request, Reserved, Course);

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
        if self.found == ClaimResult::Full && !self.queues.keep_order() && !of_lines {
            match self.launch(worker, None).await {
                Ok(next) => self.flight = next.ok(),
                Err(error) => {
                    self.flight = Some(flight);
                    return Err(error);
                }
            }
        }
        let found = self.claim_on(worker, flight).await?;
        if found == ClaimResult::Full && !self.queues.keep_order() && of_lines {
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
            let looked = self.lanes.look(link.get().await?, self.store).await;
            link.note(looked)?;
            self.keep_singles();
        }
        let mut reserved = Reserved::new();
        let mut shares: Vec<Share> = Vec::new();
        let (mut of_lines, mut next, mut any_waits, aside) = (None, None, false, self.looks_aside());
        let (turn, offered) = self.offered(begin);
        let is_single = |lane: &&Lane| !(from_zero && lane.fair) && self.queues.batch_of(lane.job_type).is_none();
        for (nth, id) in offered.iter().enumerate() {
            let Some(lane) = self.lanes.get(*id).filter(is_single) else { continue };
            if self.limits.free.waits(lane) {
                any_waits = true;
                continue;
            }
            if of_lines.is_some_and(|of_lines| of_lines != lane.fair) {
                next = Some(nth);
                break;
            }
            let promised = match reserved.entry(lane.queue.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(fresh) => match self.queues.slots(&lane.queue) {
                    Some(slots) => fresh.insert(slots.demand(self.batch, lane.fair)),
                    None => continue,
                },
            };
            let most = if from_zero { late_share(promised, aside) } else { promised.count };
            if most > 0 {
                shares.push(Share { lane: lane.id, most });
                of_lines = Some(lane.fair);
            }
        }
        if !from_zero {
            self.note_unasked(&reserved);
        }
        if let Some(next) = next {
            // Of many lanes what is left is offered again.
            self.lanes.take_back(offered[next..].iter().copied());
        }
        self.fit(&mut shares);
        if shares.is_empty() {
            self.owe_later(any_waits, reserved.is_empty(), from_zero);
            let saturated = if reserved.is_empty() { ClaimResult::Jobs(0) } else { ClaimResult::Saturated };
            return Ok(Err(if self.lanes.more_wait() { ClaimResult::Full } else { saturated }));
        }
        // Not by looks below the floors, nor by passes that find no slot: two steps at a time, and of two lanes the same one would always be first.
        if begin.is_none() && !from_zero {
            self.turn = self.turn.wrapping_add(1);
        }
        self.let_age(&mut shares);
        let asked = shares.iter().fold(0_usize, |sum, share| sum.saturating_add(share.most));
        let slots: usize = reserved.values().map(|promised| promised.count).sum();
        let most = if from_zero && aside { asked } else { slots.min(asked) }.min(self.batch);
        let from = self.source(of_lines == Some(true), from_zero);
        if from == (From::Lanes { from_zero: true }) {
            self.rescan.begin();
        }
        let course = Course { next: next.map(|nth| Onward { turn, lane: offered[nth] }), of_lines: from == From::Lines };
        Ok(Ok((Request::new(worker, shares, most, from, &mut self.lanes, &self.held), reserved, course)))
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
        if let Some(aging) = self.aging {
            offered.sort_by_cached_key(|lane| !self.lanes.is_passed_over(*lane, aging));
        }
        // Of many lanes what was left is offered again, and nothing else.
        let left = begin.filter(|_| !self.lanes.are_many());
        if let Some(first) = left.and_then(|left| offered.iter().position(|lane| *lane == left.lane)) {
            offered.drain(..first);
        }
        (turn, offered)
    }

    pub(super) fn send(&mut self, request: Request, reserved: Reserved, course: Course, aside: bool) -> Flight {
        let (mut link, store, bell, air) = (self.links.take(), self.store, Arc::clone(&self.bell), self.reserve(&request));
        if aside {
            link.call("late");
        }
        let landing = tokio::spawn(async move {
            let answer = request.send(&mut link, store).await;
            if aside {
                bell.nudge();
            }
            (link, answer)
        });
        let (paused, sent) = (self.queues.pauses().now(), Instant::now());
        Flight { reserved, paused, course, is_part: false, sent, landing, said: None, air }
    }

    /// Waits for a claim, and gives its jobs to their queues' slots, or back if they were paused since. Drops them if our identity is gone meanwhile:
    /// they will be recovered.
    pub(super) async fn land(&mut self, flight: Flight) -> sqlx::Result<ClaimResult> {
        let Flight { reserved, paused: _kept, landing, air: _brought, .. } = flight;
        let (mut link, answer) = landing.await.map_err(|_| sqlx::Error::WorkerCrashed)?;
        // Whatever it is used for next does not wait for those that take long.
        link.call("claim");
        self.links.idle.push(link);
        let (worker, most, from, took) = (answer.request.worker, answer.request.most, answer.request.from, answer.took);
        self.bell.vitals().note_claim(took);
        let shares = answer.request.shares.clone();
        let lanes: Vec<i64> = shares.iter().map(|share| share.lane).collect();
        let is_late = matches!(from, From::Lanes { from_zero: true } | From::Late(_));
        let brought = answer.read(&mut self.lanes).inspect_err(|_| self.rescan.owed |= is_late)?;
        let (claimed, count) = (&brought.jobs, brought.jobs.len() + brought.unread.len());
        // A part of a look says nothing of the lanes that it found nothing of.
        self.note_served(&lanes, count < most && brought.swept.is_none(), claimed.iter().map(|job| job.job.lane));
        if brought.swept.is_none() {
            self.note_free(&reserved, &lanes, claimed, count >= most);
        }
        match (from, brought.swept) {
            (_, Some(part)) => self.rescan.did(took, part, count >= most || fills_a_lane(claimed, &shares)),
            (From::Lanes { from_zero: true }, None) => self.rescan.done(took, count),
            (From::Lanes { from_zero: false }, None) if count < most => self.rescan.owed = true,
            _ => {}
        }
        let filled = self.hand_over(worker, &reserved, brought).await;
        Ok(if filled || count >= most { ClaimResult::Full } else { ClaimResult::Jobs(count) })
    }

    /// Gives what a claim brought to the slots, and back what must not begin; returns whether some queue has all that was reserved in it.
    pub(super) async fn hand_over(&mut self, worker: Uuid, reserved: &Reserved, brought: Brought) -> bool {
        let Brought { jobs: claimed, unread, .. } = brought;
        let by_queue = by_queue(claimed);
        let ours = *self.identity.borrow() == Some(worker);
        let mut filled = false;
        let paused = self.queues.pauses().now().filter(|paused| !paused.is_nothing());
        for (queue, mut jobs) in by_queue {
            if let Some(promised) = reserved.get(&queue).filter(|_| ours) {
                filled |= jobs.len() >= promised.count;
                if let Some(paused) = &paused {
                    for job in jobs.extract_if(.., |job| paused.stops(&queue, job.job.job_type, job.holding.gates())) {
                        promised.slots.give_back(&job).await;
                    }
                }
                promised.push(jobs);
            }
        }
        for job in &unread {
            // Others may have raised the floor by the time they are back.
            self.rescan.owed = true;
            let slots = self.lanes.get(job.job.lane).and_then(|lane| self.queues.slots(&lane.queue));
            if let Some(slots) = slots.filter(|_| ours) {
                slots.give_back(job).await;
            }
        }
        if ours && *self.identity.borrow() != Some(worker) {
            // Lost between the question and the push: whoever dropped what ran here may have been quicker than that.
            self.queues.abandon();
        }
        filled
    }

    /// Lanes from which jobs came have had their turn; all of these, if a claim came to the last one.
    pub(super) fn note_served(&mut self, lanes: &[i64], reached_all: bool, served: impl Iterator<Item = i64>) {
        if self.aging.is_some() {
            let reached = if reached_all { lanes } else { &[] };
            self.lanes.served(reached.iter().copied().chain(served));
        }
    }

    /// Asks for no more of each lane than one claim may bring, and than there is room for in hand. What has no room is left out.
    pub(super) fn fit(&self, shares: &mut Vec<Share>) {
        let fits = self.lanes.sizes().fit(shares.iter().map(|share| (share.lane, share.most)), self.queues.hand());
        for (share, most) in shares.iter_mut().zip(fits) {
            share.most = most;
        }
        shares.retain(|share| share.most > 0);
    }

    /// Counts in what a claim will bring, as far as that is known.
    pub(super) fn reserve(&self, request: &Request) -> Option<InHand> {
        let most = |share: &Share| self.lanes.sizes().weight(share.lane, share.most.min(request.most));
        let bytes = request.shares.iter().map(most).max().unwrap_or(0);
        (bytes > 0).then(|| self.queues.hand().reserve(bytes))
    }

    /// Lanes that better ones have kept waiting too long go first, for a tenth of the slots.
    pub(super) fn let_age(&mut self, shares: &mut [Share]) {
        let Some(aging) = self.aging else { return };
        shares.sort_by_cached_key(|share| !self.lanes.is_passed_over(share.lane, aging));
        for share in shares {
            if self.lanes.is_passed_over(share.lane, aging) {
                share.most = share.most.div_ceil(10);
            }
        }
    }
}

/// Most claims are of one queue, and stay as they are.
fn by_queue(claimed: Vec<Claimed>) -> Vec<(Arc<str>, Vec<Claimed>)> {
    let Some(first) = claimed.first().map(|job| Arc::clone(&job.job.queue)) else { return Vec::new() };
    if claimed.iter().all(|job| Arc::ptr_eq(&job.job.queue, &first)) {
        return vec![(first, claimed)];
    }
    let mut by_queue: HashMap<Arc<str>, Vec<Claimed>> = HashMap::new();
    for job in claimed {
        by_queue.entry(Arc::clone(&job.job.queue)).or_default().push(job);
    }
    by_queue.into_iter().collect()
}
