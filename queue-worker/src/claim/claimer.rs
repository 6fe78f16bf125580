//! The claimer of a group of lanes: it waits until there may be jobs and permits, reserves slots, claims, and hands over.
//!
//! Claims under limits take two round trips: the first takes permits with the jobs, the second waits until that is on the disk. The next claim is
//! sent after the first.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    context::ClaimContext,
    flight::{Flight, Reserved},
    pacing::Pacing,
    waiter::{FIRST, Kind, SlotWaiter},
};
use crate::{
    lanes::{Group, Lane, Rescan, Share, Track, order},
    live::ClaimerState,
    run::Slots,
};

/// The claimer of a group of lanes.
pub(super) struct Claimer {
    pub(super) context: Arc<ClaimContext>,
    group: watch::Receiver<Arc<Group>>,
    pub(super) waiter: SlotWaiter,
    pub(super) track: Track,
    pub(super) pacing: Pacing,
    pub(super) rescan: Rescan,
    pub(super) news: News,
    /// From where on to read the permits of each limit, and when the claim that said so was sent.
    pub(super) permit_floors: Option<(Vec<i64>, Instant)>,
    /// Which of its lanes goes first; another one after each claim that brought jobs.
    pub(super) turn: usize,
    /// Claims on their way; under limits those that wait until what they took is on the disk.
    pub(super) landing: JoinSet<Flight>,
    /// A look below the floors is on its way beside the claims.
    pub(super) looks_late: bool,
}

/// What has ended here that held permits.
pub(super) struct News {
    /// Leases of which jobs ended, which no claim has said yet.
    pub(super) freed: HashSet<Uuid>,
    /// A claim is to say so though no job may be claimed; and when one was sent last.
    pub(super) any: bool,
    pub(super) sent_at: Instant,
}

/// What has ended here is said soon, even if there is no slot to claim for: this long after the last claim.
const SAY: Duration = Duration::from_millis(20);

/// A claimer that waits for slots looks again after this, for those that other stores have left.
const LOOK: Duration = Duration::from_millis(250);

/// It is woken by what it waits for.
pub(super) const LONG: Duration = Duration::from_hours(1);

impl Claimer {
    /// Creates the claimer of this group. All claimers of a worker share the floors.
    pub(super) fn new(context: &Arc<ClaimContext>, group: watch::Receiver<Arc<Group>>, track: Track) -> Self {
        let (waiter, is_limited) = (SlotWaiter::new(group.borrow().hint.notify()), group.borrow().is_limited());
        Self {
            context: Arc::clone(context),
            group,
            waiter,
            track,
            pacing: Pacing::new(is_limited),
            rescan: Rescan::default(),
            news: News { freed: HashSet::new(), any: false, sent_at: Instant::now() },
            permit_floors: None,
            turn: 0,
            landing: JoinSet::new(),
            looks_late: false,
        }
    }

    /// Until `stop` fires, or the group is gone. Waits are broken off by that, statements never.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut group = self.join();
        while !stop.is_cancelled() {
            match self.group.has_changed() {
                Ok(true) => group = self.join(),
                Ok(false) => {}
                Err(_) => break,
            }
            self.hear(&group);
            let Some(until) = self.step(&group).await else { continue };
            // While this is held, the pauses that it was made by count as in use.
            let hint = Arc::clone(&group.hint);
            drop(group);
            tokio::select! {
                () = hint.notify().notified() => {}
                _ = self.group.changed() => self.group.mark_changed(),
                Some(flight) = self.landing.join_next(), if !self.landing.is_empty() => self.land(flight).await,
                () = stop.cancelled() => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
            group = Arc::clone(&self.group.borrow());
        }
        self.waiter.leave_all();
        while let Some(flight) = self.landing.join_next().await {
            self.land(flight).await;
        }
    }

    /// Takes over the group as the scout has published it last.
    fn join(&mut self) -> Arc<Group> {
        let group = Arc::clone(&self.group.borrow_and_update());
        self.waiter.only_offered(group.are_many(), self.track.ids());
        self.track.set(group.lanes.iter());
        self.waiter.look_anew();
        self.pacing.reopen();
        group
    }

    fn hear(&mut self, group: &Group) {
        let told = group.hint.take();
        if told.jobs && self.pacing.rests() {
            // Nothing has kept them waiting until now.
            self.track.served(group.lanes.iter().map(|lane| lane.id));
        }
        self.pacing.hear(&told);
        if told.jobs {
            self.waiter.look_anew();
            self.waiter.offer(told.lanes);
        }
        self.news.any |= !told.freed.is_empty();
        self.news.freed.extend(told.freed);
    }

    /// Claims, if it is time; returns until when to wait, or `None` to go on at once.
    async fn step(&mut self, group: &Arc<Group>) -> Option<Instant> {
        let now = Instant::now();
        let owed_at = self.owed_at(group, now);
        let due = self.pacing.due(now, owed_at);
        let is_due = due.is_some_and(|at| now >= at);
        let say_at = (self.news.any && !self.pacing.is_broken()).then(|| self.news.sent_at + SAY);
        let (says, late_at) = (say_at.is_some_and(|at| now >= at), self.late_at(group, is_due, now));
        let is_late = late_at.is_some_and(|at| now >= at);
        if !is_due && (group.is_limited() || self.landing.len() == usize::from(self.looks_late)) {
            self.waiter.leave_all();
        }
        self.show(group);
        if !is_due && !says && !is_late {
            return Some([due, say_at, late_at].into_iter().flatten().min().unwrap_or(now + LONG));
        }
        let is_quiet = self.context.is_quiet.load(SeqCst);
        let is_heeded = self.context.queues.pauses().now().is_some_and(|paused| Arc::ptr_eq(&paused, &group.paused));
        let Some(worker) = self.context.worker().filter(|_| !is_quiet && is_heeded) else {
            // The scout wakes it once that is otherwise.
            self.waiter.leave_all();
            return Some(now + LONG);
        };
        if let Some(until) = self.context.slowed.holds(&group.under.gates) {
            self.pacing.break_until(until);
            return None;
        }
        if is_late {
            self.look_for_late_ones(worker, group);
            return None;
        }
        if self.landing.len() - usize::from(self.looks_late) >= self.ahead(group) {
            if let Some(flight) = self.landing.join_next().await {
                self.land(flight).await;
            }
            return None;
        }
        let leave = if group.is_limited() { Some(self.leave().await?) } else { None };
        if !self.waiter.waits() || self.waiter.has_waited(LOOK) || owed_at.is_some_and(|at| now >= at) {
            self.waiter.look_anew();
        }
        let (mut shares, reserved) = if is_due { self.reserve(group) } else { Default::default() };
        if is_due && reserved.is_empty() {
            self.pacing.rest();
            if group.lanes.is_empty() || group.are_many() {
                self.rescan.end();
            }
        }
        self.context.fit(&self.track, &mut shares);
        if shares.is_empty() && !says {
            if reserved.values().any(|promised| promised.count > 0) {
                // What it has slots for is too large for now.
                self.waiter.leave_all();
            }
            group.hint.fails.store(false, SeqCst);
            let wait = self.context.aging.map_or(LOOK, |aging| aging.min(LOOK));
            let until = now + if reserved.is_empty() { SAY } else { wait };
            return Some(owed_at.filter(|at| now < *at).map_or(until, |at| at.min(until)));
        }
        self.context.let_age(&mut self.track, &mut shares);
        self.claim(worker, (group, shares, reserved), leave).await;
        None
    }

    /// When the next claim must look below the floors, if it must.
    fn owed_at(&self, group: &Group, now: Instant) -> Option<Instant> {
        (self.rescan.owes() && !self.looks_aside(group)).then(|| self.rescan.owed_at().unwrap_or(now))
    }

    /// The most claims in flight: one where jobs must begin in order, or where the next claim goes on from what this one returns. Otherwise two while
    /// claims come back full, and four under limits, where all but one wait for the disk.
    fn ahead(&self, group: &Group) -> usize {
        match (group.is_limited(), group.kind.in_lines || !self.pacing.is_full()) {
            _ if self.context.queues.keep_order() => 1,
            (false, true) => 1,
            (false, false) => 2,
            (true, _) => 4,
        }
    }

    /// Waits until it may send a claim under limits. Others may have the slots meanwhile.
    async fn leave(&mut self) -> Option<OwnedSemaphorePermit> {
        let flights = Arc::clone(&self.context.flights);
        if let Ok(leave) = Arc::clone(&flights).try_acquire_owned() {
            return Some(leave);
        }
        self.waiter.leave_all();
        self.landing_until(flights.acquire_owned()).await.ok()
    }

    fn show(&self, group: &Group) {
        let now = Instant::now();
        let (before, state) = (group.hint.state(), self.pacing.state(now, self.owed_at(group, now)));
        let is_over = state != ClaimerState::Resting || (self.landing.is_empty() && group.hint.rest());
        if before != state && is_over {
            group.hint.show(state);
            self.context.bell.nudge();
        }
    }

    /// Slots for jobs of its lanes, in each queue: it is not known where the jobs are.
    fn reserve(&mut self, group: &Group) -> (Vec<Share>, Reserved) {
        let mut lanes: Vec<(i32, &Lane)> = Vec::with_capacity(group.lanes.len());
        for lane in order(group.lanes.iter(), self.turn) {
            let is_aged = self.context.aging.is_some_and(|aging| self.track.is_passed_over(lane.id, aging));
            if is_aged || self.waiter.may_hold(lane) {
                lanes.push((if is_aged { FIRST } else { lane.priority.into() }, lane));
            }
        }
        lanes.sort_by_key(|(priority, _)| *priority != FIRST);
        let most = group.most(self.context.batch);
        let most = |slots: &Slots| if group.under.timed { most.min(slots.concurrency()) } else { most };
        let kind = Kind { takes_batches: group.kind.takes_batches, in_turn: group.kind.in_lines };
        let (shares, reserved) = self.waiter.reserve_for(&self.context.queues, &lanes, most, kind);
        self.waiter.keep(|queue| reserved.contains_key(queue));
        (shares, reserved)
    }

    /// Waits for this, and hands over what lands meanwhile.
    pub(super) async fn landing_until<T>(&mut self, wait: impl Future<Output = T>) -> T {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return done,
                Some(flight) = self.landing.join_next(), if !self.landing.is_empty() => self.land(flight).await,
            }
        }
    }
}
