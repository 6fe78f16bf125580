//! Claims jobs for one group of lanes. A claimer waits for jobs and permits, and reserves slots. The claimer then sends a claim and passes
//! the claimed jobs to the slots.
//!
//! A claim under limits takes two round trips. The first round trip takes permits and jobs, and the second waits until both are durable.
//! The next claim is sent after the first round trip.

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
    claim_timer::ClaimTimer,
    context::ClaimContext,
    in_flight::{InFlightClaim, SlotReservations},
    slot_waiter::{LaneKind, PROMOTED_PRIORITY, SlotWaiter},
};
use crate::{
    lanes::{Lane, LaneGroup, LaneQuota, LaneState, LateScan, order},
    live::ClaimerState,
    run::Slots,
};

/// Claim loop of one group of lanes.
pub(super) struct Claimer {
    pub(super) context: Arc<ClaimContext>,
    group: watch::Receiver<Arc<LaneGroup>>,
    pub(super) waiter: SlotWaiter,
    pub(super) track: LaneState,
    pub(super) timer: ClaimTimer,
    pub(super) late_scan: LateScan,
    pub(super) freed: FreedPermits,
    /// Position of the first permit to read for each limit, and the send time of the claim that returned these positions.
    pub(super) permit_floors: Option<(Vec<i64>, Instant)>,
    /// Offset that rotates the order of lanes with equal priority. The offset advances after each claim that returned jobs.
    pub(super) turn: usize,
    /// Claims in flight. A claim under limits stays in flight until its permits are durable.
    pub(super) in_flight: JoinSet<InFlightClaim>,
    /// Whether a separate scan for late jobs is in flight. Late jobs are below the floors of their lanes.
    pub(super) late_scan_in_flight: bool,
}

/// Released permits that have not been reported to the database yet.
pub(super) struct FreedPermits {
    /// Leases whose finished jobs have not been reported to the database yet.
    pub(super) leases: HashSet<Uuid>,
    /// Whether to send a report of `leases` even if no job can be claimed.
    pub(super) is_unreported: bool,
    /// Time at which the last claim was sent.
    pub(super) sent_at: Instant,
}

/// Time since the last claim after which released permits are reported even if no job can be claimed.
const FREED_REPORT_DELAY: Duration = Duration::from_millis(20);

/// Interval at which a waiting claimer checks for free slots. Workers of other stores in this process may have released slots without
/// waking the claimer.
const SLOT_RECHECK: Duration = Duration::from_millis(250);

/// Effectively infinite timeout for waits that normally end with a notification.
pub(super) const FAR_FUTURE: Duration = Duration::from_hours(1);

impl Claimer {
    /// Creates the claimer of a lane group. All claimers of a worker share the floors of the lanes.
    pub(super) fn new(context: &Arc<ClaimContext>, group: watch::Receiver<Arc<LaneGroup>>, track: LaneState) -> Self {
        let (waiter, is_limited) = (SlotWaiter::new(group.borrow().inbox.wakeup()), group.borrow().is_limited());
        Self {
            context: Arc::clone(context),
            group,
            waiter,
            track,
            timer: ClaimTimer::new(is_limited),
            late_scan: LateScan::default(),
            freed: FreedPermits { leases: HashSet::new(), is_unreported: false, sent_at: Instant::now() },
            permit_floors: None,
            turn: 0,
            in_flight: JoinSet::new(),
            late_scan_in_flight: false,
        }
    }

    /// Runs the claimer until `stop` is cancelled or the group no longer exists. Cancellation interrupts waits, but not statements.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut group = self.adopt_group();
        while !stop.is_cancelled() {
            match self.group.has_changed() {
                Ok(true) => group = self.adopt_group(),
                Ok(false) => {}
                Err(_) => break,
            }
            self.take_notices(&group);
            let Some(until) = self.step(&group).await else { continue };
            // A waiting claimer must not hold a version of the group. A pause is acknowledged only after all older versions of the group
            // are dropped.
            let inbox = Arc::clone(&group.inbox);
            drop(group);
            tokio::select! {
                () = inbox.wakeup().notified() => {}
                _ = self.group.changed() => self.group.mark_changed(),
                Some(flight) = self.in_flight.join_next(), if !self.in_flight.is_empty() => self.land(flight).await,
                () = stop.cancelled() => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
            group = Arc::clone(&self.group.borrow());
        }
        self.waiter.leave_all();
        while let Some(flight) = self.in_flight.join_next().await {
            self.land(flight).await;
        }
    }

    /// Switches to the latest version of the group.
    fn adopt_group(&mut self) -> Arc<LaneGroup> {
        let group = Arc::clone(&self.group.borrow_and_update());
        self.waiter.restrict_to_offered(group.are_many(), self.track.ids());
        self.track.set(group.lanes.iter());
        self.waiter.forget_empty();
        self.timer.reopen();
        group
    }

    fn take_notices(&mut self, group: &LaneGroup) {
        let notice = group.inbox.take();
        if notice.jobs && self.timer.is_resting() {
            // The lanes were empty until this notice, so the waiting time that counts for aging starts now.
            self.track.record_served(group.lanes.iter().map(|lane| lane.id));
        }
        self.timer.record_notice(&notice);
        if notice.jobs {
            self.waiter.forget_empty();
            self.waiter.offer(notice.lanes);
        }
        self.freed.is_unreported |= !notice.freed.is_empty();
        self.freed.leases.extend(notice.freed);
    }

    /// Runs one step of the claim loop, which sends a claim if one is due. Returns the time of the next step, or `None` to run the next
    /// step immediately.
    async fn step(&mut self, group: &Arc<LaneGroup>) -> Option<Instant> {
        let now = Instant::now();
        let late_scan_at = self.late_scan_due_at(group, now);
        let due = self.timer.due(now, late_scan_at);
        let is_due = due.is_some_and(|at| now >= at);
        let report_at = (self.freed.is_unreported && !self.timer.is_backing_off()).then(|| self.freed.sent_at + FREED_REPORT_DELAY);
        let (reports_freed, separate_scan_at) = (report_at.is_some_and(|at| now >= at), self.separate_scan_at(group, is_due, now));
        let is_late_scan = separate_scan_at.is_some_and(|at| now >= at);
        if !is_due && (group.is_limited() || self.in_flight.len() == usize::from(self.late_scan_in_flight)) {
            self.waiter.leave_all();
        }
        self.publish_state(group);
        if !is_due && !reports_freed && !is_late_scan {
            return Some([due, report_at, separate_scan_at].into_iter().flatten().min().unwrap_or(now + FAR_FUTURE));
        }
        let is_quiet = self.context.is_quiet.load(SeqCst);
        let is_heeded = self.context.queues.pauses().now().is_some_and(|paused| Arc::ptr_eq(&paused, &group.paused));
        let Some(worker) = self.context.worker().filter(|_| !is_quiet && is_heeded) else {
            // The worker has no identity, normal claims are paused, or the group does not apply the latest pauses yet. The poller
            // notifies this claimer when claiming is allowed again.
            self.waiter.leave_all();
            return Some(now + FAR_FUTURE);
        };
        if let Some(until) = self.context.slow_downs.holds(&group.under.limit_ids) {
            self.timer.back_off_until(until);
            return None;
        }
        if is_late_scan {
            self.send_late_scan(worker, group);
            return None;
        }
        if self.in_flight.len() - usize::from(self.late_scan_in_flight) >= self.max_in_flight(group) {
            if let Some(flight) = self.in_flight.join_next().await {
                self.land(flight).await;
            }
            return None;
        }
        let permit = if group.is_limited() { Some(self.acquire_limited_claim().await?) } else { None };
        if !self.waiter.is_waiting() || self.waiter.is_older_than(SLOT_RECHECK) || late_scan_at.is_some_and(|at| now >= at) {
            self.waiter.forget_empty();
        }
        let (mut shares, reserved) = if is_due { self.reserve(group) } else { Default::default() };
        if is_due && reserved.is_empty() {
            self.timer.rest();
            if group.lanes.is_empty() || group.are_many() {
                self.late_scan.clear();
            }
        }
        self.context.fit(&self.track, &mut shares);
        if shares.is_empty() && !reports_freed {
            if reserved.values().any(|promised| promised.count > 0) {
                // The payloads of the lanes with reserved slots do not fit into the remaining memory, so the claimer stops waiting for
                // slots.
                self.waiter.leave_all();
            }
            group.inbox.fails.store(false, SeqCst);
            let wait = self.context.aging.map_or(SLOT_RECHECK, |aging| aging.min(SLOT_RECHECK));
            let until = now + if reserved.is_empty() { FREED_REPORT_DELAY } else { wait };
            return Some(late_scan_at.filter(|at| now < *at).map_or(until, |at| at.min(until)));
        }
        self.context.apply_aging(&mut self.track, &mut shares);
        self.claim(worker, (group, shares, reserved), permit).await;
        None
    }

    /// Returns the time from which the next claim must also scan below the floors. Returns `None` if no late scan is pending, or if late
    /// jobs are claimed by separate scans.
    fn late_scan_due_at(&self, group: &LaneGroup, now: Instant) -> Option<Instant> {
        (self.late_scan.is_pending() && !self.scans_separately(group)).then(|| self.late_scan.pending_at().unwrap_or(now))
    }

    /// Returns the maximum number of claims in flight. The first matching case applies:
    ///
    /// - one, if jobs must start in order
    /// - four under limits, because all but one of the claims are waiting for a WAL flush
    /// - one for fair queues, because each claim continues after the last fair queue of the previous claim
    /// - two, if the last claim returned as many jobs as requested
    /// - one otherwise
    fn max_in_flight(&self, group: &LaneGroup) -> usize {
        match (group.is_limited(), group.kind.is_fair || !self.timer.is_full()) {
            _ if self.context.queues.keep_order() => 1,
            (false, true) => 1,
            (false, false) => 2,
            (true, _) => 4,
        }
    }

    /// Acquires a semaphore permit to send a claim under limits. Releases the reserved slots while waiting.
    async fn acquire_limited_claim(&mut self) -> Option<OwnedSemaphorePermit> {
        let limited_claims = Arc::clone(&self.context.limited_claims);
        if let Ok(leave) = Arc::clone(&limited_claims).try_acquire_owned() {
            return Some(leave);
        }
        self.waiter.leave_all();
        self.land_until(limited_claims.acquire_owned()).await.ok()
    }

    fn publish_state(&self, group: &LaneGroup) {
        let now = Instant::now();
        let (before, state) = (group.inbox.state(), self.timer.state(now, self.late_scan_due_at(group, now)));
        let is_final = state != ClaimerState::Resting || (self.in_flight.is_empty() && group.inbox.rest());
        if before != state && is_final {
            group.inbox.set_state(state);
            self.context.notifier.wake();
        }
    }

    /// Reserves slots for all lanes of the group that may hold jobs. Only the claim shows which of these lanes do hold jobs.
    fn reserve(&mut self, group: &LaneGroup) -> (Vec<LaneQuota>, SlotReservations) {
        let mut lanes: Vec<(i32, &Lane)> = Vec::with_capacity(group.lanes.len());
        for lane in order(group.lanes.iter(), self.turn) {
            let is_aged = self.context.aging.is_some_and(|aging| self.track.is_passed_over(lane.id, aging));
            if is_aged || self.waiter.may_hold(lane) {
                lanes.push((if is_aged { PROMOTED_PRIORITY } else { lane.priority.into() }, lane));
            }
        }
        lanes.sort_by_key(|(priority, _)| *priority != PROMOTED_PRIORITY);
        let most = group.most(self.context.batch);
        let most = |slots: &Slots| if group.under.timed { most.min(slots.concurrency()) } else { most };
        let kind = LaneKind { takes_batches: group.kind.takes_batches, in_turn: group.kind.is_fair };
        let (shares, reserved) = self.waiter.reserve_for(&self.context.queues, &lanes, most, kind);
        self.waiter.retain_queues(|queue| reserved.contains_key(queue));
        (shares, reserved)
    }

    /// Awaits `wait`. In the meantime, passes the jobs of finished claims to slots.
    pub(super) async fn land_until<T>(&mut self, wait: impl Future<Output = T>) -> T {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return done,
                Some(flight) = self.in_flight.join_next(), if !self.in_flight.is_empty() => self.land(flight).await,
            }
        }
    }
}
