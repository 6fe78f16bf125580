//! How a claim is sent and how it lands: what is asked for, which slots are reserved for it, and whose its jobs are.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Instant,
};

use uuid::Uuid;

use super::{
    feed::Feed,
    flight::{ClaimResult, Flight, Reserved},
};
use crate::lanes::{Brought, Claimed, Request, Share};

impl Feed {
    /// Claims single jobs for every queue with free slots. While there is more than one claim can take, another is in the air beside it.
    pub(super) async fn claim_singles(&mut self, worker: Uuid) -> sqlx::Result<ClaimResult> {
        if self.looks_aside() && self.rescan.is_due() {
            self.look_for_late_ones(worker).await?;
        }
        let flight = match self.flight.take() {
            Some(flight) => flight,
            None => match self.launch(worker, false).await? {
                Ok(flight) => flight,
                Err(found) => return Ok(found),
            },
        };
        if self.found == ClaimResult::Full && !self.queues.keep_order() {
            match self.launch(worker, false).await {
                Ok(next) => self.flight = next.ok(),
                Err(error) => {
                    self.flight = Some(flight);
                    return Err(error);
                }
            }
        }
        let found = self.land(flight).await?;
        if self.flight.is_some() || self.lanes.more_wait() {
            return Ok(ClaimResult::Full);
        }
        // Below the floors lies what was committed late. Seldom anything does, and the jobs found above are under way by now.
        if let ClaimResult::Jobs(count) = found
            && self.rescan.owed
            && self.rescan.may(Instant::now())
        {
            if self.looks_aside() {
                self.look_for_late_ones(worker).await?;
            } else if let Ok(flight) = self.launch(worker, true).await? {
                return Ok(match self.land(flight).await? {
                    ClaimResult::Jobs(late) => ClaimResult::Jobs(count + late),
                    more => more,
                });
            }
        }
        Ok(found)
    }

    /// Whether to look below the floors beside other claims, since it takes long. Not where the order of jobs is to be seen: two claims would mix it.
    fn looks_aside(&self) -> bool {
        self.rescan.is_slow && !self.queues.keep_order()
    }

    /// Sends a claim below the floors on its way, which rings when it is over. It takes a few jobs and reserves no slots for them, lest those that
    /// come meanwhile find none; where it finds some, the floor falls, and the next claims find the rest.
    async fn look_for_late_ones(&mut self, worker: Uuid) -> sqlx::Result<()> {
        const FEW: usize = 10;
        if self.late.is_none()
            && let Ok((mut request, reserved)) = self.prepare(worker, true).await?
        {
            request.limit(FEW);
            let reserved = reserved.into_iter().map(|(queue, promised)| (queue, promised.without_slots())).collect();
            self.late = Some(self.send(request, reserved, true));
        }
        Ok(())
    }

    /// Sends a claim on its way; or says why there is none to send.
    async fn launch(&mut self, worker: Uuid, from_zero: bool) -> sqlx::Result<Result<Flight, ClaimResult>> {
        Ok(self.prepare(worker, from_zero).await?.map(|(request, reserved)| self.send(request, reserved, false)))
    }

    /// What to claim now, and the slots that are reserved for it.
    async fn prepare(&mut self, worker: Uuid, from_zero: bool) -> sqlx::Result<Result<(Request, Reserved), ClaimResult>> {
        if self.lanes.must_look() {
            let link = self.links.any();
            let looked = self.lanes.look(link.get().await?, self.store).await;
            link.note(looked)?;
            self.keep_singles();
        }
        self.turn = self.turn.wrapping_add(1);
        let mut reserved = Reserved::new();
        let mut shares: Vec<Share> = Vec::new();
        for lane in self.lanes.offer(self.turn, self.found == ClaimResult::Full) {
            if self.queues.batch_of(lane.job_type).is_some() {
                continue;
            }
            let promised = match reserved.entry(lane.queue.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(fresh) => match self.queues.slots(&lane.queue) {
                    Some(slots) => fresh.insert(slots.demand(self.batch)),
                    None => continue,
                },
            };
            if promised.count > 0 {
                shares.push(Share { lane: lane.id, most: promised.count });
            }
        }
        if shares.is_empty() {
            // Where there is no lane, nothing lies below a floor.
            self.rescan.owed &= !reserved.is_empty();
            let saturated = if reserved.is_empty() { ClaimResult::Jobs(0) } else { ClaimResult::Saturated };
            return Ok(Err(if self.lanes.more_wait() { ClaimResult::Full } else { saturated }));
        }
        self.let_age(&mut shares);
        for share in &mut shares {
            share.most = share.most.min(self.lanes.fitting(share.lane));
        }
        let asked = shares.iter().fold(0_usize, |sum, share| sum.saturating_add(share.most));
        let most = reserved.values().map(|promised| promised.count).sum::<usize>().min(asked).min(self.batch);
        let from_zero = from_zero || self.lanes.are_many() || (!self.looks_aside() && self.rescan.is_due());
        if from_zero {
            self.rescan.begin();
        }
        Ok(Ok((Request::new(worker, shares, most, from_zero, &self.lanes, &self.held), reserved)))
    }

    pub(super) fn send(&mut self, request: Request, reserved: Reserved, rings: bool) -> Flight {
        let (mut link, store, bell) = (self.links.take(), self.store, Arc::clone(&self.bell));
        let landing = tokio::spawn(async move {
            let answer = request.send(&mut link, store).await;
            if rings {
                bell.ring();
            }
            (link, answer)
        });
        Flight { reserved, paused: self.queues.pauses().now(), landing }
    }

    /// Waits for a claim, and gives its jobs to their queues' slots, or back if they were paused since. Drops them if our identity is gone meanwhile:
    /// they will be recovered.
    pub(super) async fn land(&mut self, flight: Flight) -> sqlx::Result<ClaimResult> {
        let Flight { reserved, paused: _kept, landing } = flight;
        let (link, answer) = landing.await.map_err(|_| sqlx::Error::WorkerCrashed)?;
        self.links.idle.push(link);
        let (worker, most, from_zero, took) = (answer.request.worker, answer.request.most, answer.request.from_zero, answer.took);
        let lanes: Vec<i64> = answer.request.shares.iter().map(|share| share.lane).collect();
        let Brought { jobs: claimed, unread } = answer.read(&mut self.lanes).inspect_err(|_| self.rescan.owed |= from_zero)?;
        let count = claimed.len() + unread.len();
        if self.aging.is_some() {
            let reached = if count < most { lanes.len() } else { 0 };
            self.lanes.served(lanes[..reached].iter().copied().chain(claimed.iter().map(|job| job.job.lane)));
        }
        if from_zero {
            self.rescan.done(took, count);
        } else if count < most {
            self.rescan.owed = true;
        }
        let mut by_queue: HashMap<&str, Vec<Claimed>> = HashMap::new();
        for job in claimed {
            let queue = self.lanes.get(job.job.lane).map_or("", |lane| lane.queue.as_str());
            by_queue.entry(queue).or_default().push(job);
        }
        let ours = *self.identity.borrow() == Some(worker);
        let mut filled = count >= most;
        let paused = self.queues.pauses().now().filter(|paused| !paused.is_nothing());
        for (queue, mut jobs) in by_queue {
            if let Some(promised) = reserved.get(queue).filter(|_| ours) {
                filled |= jobs.len() >= promised.count;
                if let Some(paused) = &paused {
                    for job in jobs.extract_if(.., |job| paused.covers(queue, job.job.job_type)) {
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
        Ok(if filled { ClaimResult::Full } else { ClaimResult::Jobs(count) })
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
